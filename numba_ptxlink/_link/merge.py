"""One definition out of several equal ones: PTX that defines the same function in more than one input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx_text

if TYPE_CHECKING:
    from collections.abc import Iterable

_LABEL = re.compile(r"\$L\w+")
_NOISE = re.compile(r"^[ \t]*\.(?:loc|file|pragma\s+\"nounroll\")\b[^\n]*$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_LOCAL = re.compile(
    r"^[ \t]*\.(?:global|const)\b[^;={]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=[^;]*)?;", re.MULTILINE
)


def same(texts: Iterable[str], name: str) -> bool:
    """
    Return whether every PTX in *texts* defines the function *name*, all in the same way.

    The same way: instruction by instruction, labels aside, and with equal private variables and functions.
    """
    forms = {_form(ptx_text.blank_comments(text), name) for text in texts}
    return len(forms) == 1 and None not in forms


def weaken(ptx: bytes, names: Iterable[str]) -> bytes:
    """Return *ptx* with its definitions of the functions *names* made weak, which a linker merges."""
    text = ptx.decode(errors="surrogateescape")
    blanked = ptx_text.blank_comments(text)
    wanted = set(names)
    for match in reversed(list(ptx_text.FUNCTION.finditer(blanked))):
        if match["name"] in wanted and match["linkage"].strip() == ".visible":
            start, end = match.span("linkage")
            text = f"{text[:start]}.weak {text[end:]}"
    return text.encode(errors="surrogateescape")


def _form(text: str, name: str, seen: frozenset[str] = frozenset()) -> str | None:
    """Return a definition's text in which only what matters is left, None where there is no definition."""
    match = next(
        (each for each in ptx_text.FUNCTION.finditer(text) if each["name"] == name and each["end"] == "{"),
        None,
    )
    if match is None:
        return None
    body = text[match.start("kind") : _closing(text, match.end())]
    labels: dict[str, str] = {}
    form = _LABEL.sub(lambda label: labels.setdefault(label[0], f"$L{len(labels)}"), _NOISE.sub("", body))
    form = " ".join(form.split())
    used = set(_NAME.findall(body)) - seen - {name}
    private = [" ".join(variable[0].split()) for variable in _LOCAL.finditer(text) if variable[1] in used]
    called = [
        each["name"]
        for each in ptx_text.FUNCTION.finditer(text)
        if each["name"] in used and each["end"] == "{" and not each["linkage"].strip()
    ]
    inner = [_form(text, each, seen | {name, *called}) or "" for each in called]
    return "\n".join((form, *private, *inner))


def _closing(text: str, after: int) -> int:
    """Return where the block ends whose opening brace stands right before *after*."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, after):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text)
