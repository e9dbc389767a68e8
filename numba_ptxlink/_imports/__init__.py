"""Import the Python file of an export in a state of its own, and tell what it is made of."""
