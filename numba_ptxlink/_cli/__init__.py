"""The parts of the command line: arguments, files, reports, and a module for each command."""
