"""Parse the files that compilers write, without calling a tool."""
