"""Several PTX modules as one, with the calls between them inlined: text -> text, without a tool."""


class NotCombinedError(Exception):
    """PTX modules cannot be combined; the message says why."""
