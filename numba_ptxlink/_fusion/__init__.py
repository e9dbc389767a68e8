"""Merge PTX modules into one and inline the calls between them: text -> text, without a tool."""


class NotCombinedError(Exception):
    """PTX modules cannot be combined; the message is the reason."""
