"""The parts of the command line: arguments, files, a module for each command, and its report."""
