"""
The functions of a module of LLVM IR, as numba-cuda-mlir writes it in both dialects.

A function is its first line and its blocks; what stands between functions is kept as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from numba_ptxlink._formats import llvm_types

_HEAD = re.compile(r'^define (?P<before>.*?)@(?P<name>[\w.$]+|"[^"]+")\(')
_LABEL = re.compile(r"^(?:; <label>:)?(?P<label>[\w.$-]+):")
_LOCAL = re.compile(r"%(\d+)\b")
_SYMBOL = re.compile(r'@("[^"]+"|[\w.$-]+)')
# Lists of what nothing drops, and of notes about functions; numba-cuda-mlir has none of what it compiles.
_LISTS = ("@llvm.used = ", "@llvm.compiler.used = ", "!nvvm.annotations = ")
_LINKAGES = frozenset({"dso_local", "internal", "private", "linkonce_odr", "weak", "weak_odr", "linkonce"})


@dataclass
class Block:
    """A basic block: its *label*, with the instructions behind it, one a line."""

    label: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Definition:
    """
    One definition.

    Args:
        name: The symbol.
        result: Attributes and type of its result, as text.
        params: The types and attributes of its parameters, as text, without names.
        attributes: What follows the parameters, such as attributes and debug information.
        blocks: Its blocks. Values and labels that have numbers are named v0, v1, and so on.
        more: More parameters, with their names.
    """

    name: str
    result: str
    params: list[str]
    attributes: str
    blocks: list[Block]
    more: tuple[str, ...] = ()

    @property
    def result_type(self) -> llvm_types.Type:
        """The type of its result."""
        return llvm_types.read(self.result)

    @property
    def symbols(self) -> dict[str, None]:
        """The symbols that its instructions name, in their order."""
        lines = (line for block in self.blocks for line in block.lines)
        return dict.fromkeys(name for line in lines for name in _SYMBOL.findall(line))

    def text(self) -> str:
        """Return the definition, which is internal."""
        numbered = [f"{param} %v{number}" for number, param in enumerate(self.params)]
        params = ", ".join([*numbered, *self.more])
        head = f"define internal {self.result} @{self.name}({params}) {self.attributes}".rstrip()
        body = "\n\n".join("\n".join([f"{block.label}:", *block.lines]) for block in self.blocks)
        return f"{head} {{\n{body}\n}}\n"


@dataclass
class ParsedModule:
    """
    A module of LLVM IR.

    Args:
        functions: Its definitions, by name.
        rest: All its other lines, in their order.
    """

    functions: dict[str, Definition]
    rest: list[str]

    def text(self) -> str:
        """Return its text."""
        return "\n".join([*self.rest, *(each.text() for each in self.functions.values())])

    def keep_reached(self, root: str) -> None:
        """Drop what *root* does not reach, and what would say more of that; callers come first."""
        kept, pending = {root: self.functions[root]}, [root]
        while pending:
            for name in kept[pending.pop(0)].symbols:
                if name in self.functions and name not in kept:
                    kept[name] = self.functions[name]
                    pending.append(name)
        gone = self.functions.keys() - kept.keys()
        self.functions = kept
        about = (line for line in self.rest if line.startswith("!") and gone & {*_SYMBOL.findall(line)})
        dropped = {*about, *(line for line in self.rest if line.startswith(_LISTS))}
        self.rest = [line for line in self.rest if line not in dropped]


def read(text: str) -> ParsedModule:
    """Return the module of *text*."""
    module = ParsedModule({}, [])
    lines = iter(text.splitlines())
    for line in lines:
        match = _HEAD.match(line)
        if match is None:
            module.rest.append(line)
            continue
        body: list[str] = []
        while (inner := next(lines)) != "}":
            body.append(inner)
        module.functions[match["name"]] = _function(match, line, body)
    return module


def _function(match: re.Match[str], line: str, body: list[str]) -> Definition:
    params, after = llvm_types.split(line[match.end() :])
    # Names are left out in one dialect, and are numbers in the other.
    params = [re.sub(r"\s*%\w+$", "", param) for param in params]
    # The first block has no label, and the number that follows those of the parameters.
    blocks = [Block(f"v{len(params)}")]
    for instruction in body:
        label = _LABEL.match(instruction)
        if label is not None:
            name = label["label"]
            blocks.append(Block(f"v{name}" if name.isdigit() else name))
        elif instruction.strip():
            blocks[-1].lines.append(_named(instruction))
    result = " ".join(word for word in match["before"].split() if word not in _LINKAGES)
    return Definition(match["name"], result, params, after.rstrip().rstrip("{").strip(), blocks)


def _named(instruction: str) -> str:
    """Return *instruction* with names for the values that have numbers; strings stay as they are."""
    pieces = instruction.split('"')
    pieces[::2] = [_LOCAL.sub(r"%v\1", piece) for piece in pieces[::2]]
    return '"'.join(pieces)
