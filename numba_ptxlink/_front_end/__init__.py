"""What a front end is, which there are, and what they share; see `protocol` and `registry`."""
