"""The parts of the command line: arguments, files, the cache's commands, and what a command says."""
