"""Python device functions as C symbols, compiled and linked statically, without a driver."""
