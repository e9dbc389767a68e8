"""Several PTX modules as one, with the calls between them inlined: text -> text, without a tool."""
