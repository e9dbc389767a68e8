"""Make one PTX of several: combine them, and inline the calls between them."""
