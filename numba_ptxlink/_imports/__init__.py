"""Run functions in children of a process that has imported a compiler alone, and import files there."""
