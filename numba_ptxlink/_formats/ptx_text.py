"""What the project reads out of PTX text: version, target, and the functions with their prototypes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._arch import PtxVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+([^\n]+)", re.MULTILINE)
FUNCTION = re.compile(
    r"(?P<linkage>(?:\.(?:visible|extern|weak|common)\s+)*)"
    r"\.(?P<kind>func|entry)\s+"
    r"(?:\.attribute\s*\([^)]*\)\s*)?"
    r"(?:\((?P<result>[^)]*)\)\s*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*"
    r"(?:\((?P<params>[^)]*)\))?"
    r"(?P<rest>[^{;]*)(?P<end>[{;])"
)
_PARAM = re.compile(
    r"\.(?:param|reg)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\b[^,]*?\s)?[\w$%]+\s*(?:\[\s*(?P<size>\d*)\s*\])?"
)
_VARIABLE = re.compile(
    r"\.(?P<linkage>visible|extern|weak|common)\s+\.(?P<space>global|const|shared|local)\b"
    r"(?P<type>[^;={]*?)(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<extent>(?:\[[^\]]*\]\s*)*)(?=[;=])"
)
_SCALAR_BITS = re.compile(r"[bsuf](\d+)|pred")


@dataclass(frozen=True)
class Param:
    """
    One parameter or return value of a PTX function.

    Args:
        bits: Width of a scalar, 0 for a byte array.
        align: Alignment of a byte array in bytes, 0 for a scalar.
        size: Size of a byte array in bytes, 0 for a scalar.
        type: The type as it is spelled, such as "f32"; two spellings of one width are equal.
    """

    bits: int = 0
    align: int = 0
    size: int = 0
    type: str = field(default="", compare=False)

    def __str__(self) -> str:
        if not self.bits:
            return f".align {self.align} .b8[{self.size}]" if self.align else f".b8[{self.size}]"
        return f".{self.type}" if self.floating else f".b{self.bits}"

    @property
    def floating(self) -> bool:
        """Whether a scalar is spelled as a floating-point one, which a linker tells from the others."""
        return self.type in ("f32", "f64")


@dataclass(frozen=True)
class Prototype:
    """
    A PTX function's interface, which a caller and a callee must agree on.

    Args:
        name: The symbol.
        result: The return value, None for void.
        params: The parameters, in order.
        entry: Whether it is a kernel.
    """

    name: str
    result: Param | None
    params: tuple[Param, ...]
    entry: bool = False

    def __str__(self) -> str:
        kind = ".entry" if self.entry else ".func"
        result = f" ({self.result})" if self.result else ""
        return f"{kind}{result} {self.name}({', '.join(map(str, self.params))})"


@dataclass(frozen=True)
class Function:
    """
    One occurrence of a function in PTX text.

    Args:
        prototype: Its interface.
        linkage: "visible", "extern", "weak", "common" or "" for local to the module.
        defined: Whether a body follows.
        line: 1-based line of the text it stands on.
    """

    prototype: Prototype
    linkage: str
    defined: bool
    line: int


@dataclass(frozen=True)
class Variable:
    """
    One occurrence of a variable that other modules can see.

    Args:
        name: The symbol.
        space: "global", "const" or "shared".
        type: Its alignment, type and extents as they are spelled, with single spaces.
        linkage: "visible", "extern", "weak" or "common".
        line: 1-based line of the text it stands on.
    """

    name: str
    space: str
    type: str
    linkage: str
    line: int


def version(ptx: str) -> PtxVersion | None:
    """Return the PTX ISA version that *ptx* declares, None where it declares none."""
    match = _VERSION.search(ptx)
    return PtxVersion(int(match[1]), int(match[2])) if match else None


def target(ptx: str) -> tuple[str, ...]:
    """Return what the `.target` directive of *ptx* lists, such as ("sm_90", "debug")."""
    match = _TARGET.search(ptx)
    if not match:
        return ()
    return tuple(word.strip() for word in match[1].split("//")[0].split(",") if word.strip())


def functions(ptx: str) -> Iterator[Function]:
    """Yield every function that *ptx* declares or defines, in the order of the text."""
    text = blank_comments(ptx)
    for match in FUNCTION.finditer(text):
        yield Function(
            prototype=Prototype(
                name=match["name"],
                result=next(_params(match["result"] or ""), None),
                params=tuple(_params(match["params"] or "")),
                entry=match["kind"] == "entry",
            ),
            linkage=match["linkage"].replace(".", " ").split()[0] if match["linkage"].strip() else "",
            defined=match["end"] == "{",
            line=text.count("\n", 0, match.start("kind")) + 1,
        )


def variables(ptx: str) -> Iterator[Variable]:
    """Yield every variable of *ptx* that other modules can see, in the order of the text."""
    text = blank_comments(ptx)
    for match in _VARIABLE.finditer(text):
        yield Variable(
            name=match["name"],
            space=match["space"],
            type=" ".join(f"{match['type']} {match['extent']}".split()),
            linkage=match["linkage"],
            line=text.count("\n", 0, match.start()) + 1,
        )


def blank_comments(ptx: str) -> str:
    """Return *ptx* with spaces for its comments, so that every position stays what it was."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), ptx) if "/" in ptx else ptx


def _params(text: str) -> Iterator[Param]:
    for match in _PARAM.finditer(text):
        if match["size"] is not None:
            yield Param(align=int(match["align"] or 1), size=int(match["size"] or 0), type=match["type"])
        else:
            scalar = _SCALAR_BITS.fullmatch(match["type"])
            yield Param(bits=int(scalar[1] or 1) if scalar else 0, type=match["type"])


def has_line_numbers(ptx: str) -> bool:
    """Return whether *ptx* maps its instructions to source lines."""
    return re.search(r"^\s*\.loc\s+\d", ptx, re.MULTILINE) is not None
