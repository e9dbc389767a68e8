"""Call functions in Python as compiled code is called, and compare the results."""
