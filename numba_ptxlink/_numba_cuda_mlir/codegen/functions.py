"""
Parse the functions of an LLVM module that numba-cuda-mlir writes, in both dialects.

A function consists of its first line and its blocks; lines between functions are kept unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from numba_ptxlink._formats import llvm_types

_HEAD = re.compile(r'^define (?P<before>.*?)@(?P<name>[\w.$]+|"[^"]+")\(')
_LABEL = re.compile(r"^(?:; <label>:)?(?P<label>[\w.$-]+):")
_LOCAL = re.compile(r"%(\d+)\b")
_SYMBOL = re.compile(r'@("[^"]+"|[\w.$-]+)')
# Lists of symbols that optimisation must keep, and of annotations. numba-cuda-mlir writes them for its own
# functions, which become internal here.
_DROPPED_LISTS = ("@llvm.used = ", "@llvm.compiler.used = ", "!nvvm.annotations = ")
_LINKAGES = frozenset({"dso_local", "internal", "private", "linkonce_odr", "weak", "weak_odr", "linkonce"})


@dataclass
class Block:
    """A basic block: its *label* and its instructions, one in each line."""

    label: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Definition:
    """
    The definition of a function.

    Args:
        name: The symbol.
        result: Attributes and type of the result, as text.
        params: The types and attributes of the parameters, as text, without names.
        attributes: The text behind the parameters, such as attributes and debug information.
        blocks: The basic blocks. Numbered values and labels are named v0, v1, and so on.
        extra_params: Additional parameters, with their names.
    """

    name: str
    result: str
    params: list[str]
    attributes: str
    blocks: list[Block]
    extra_params: tuple[str, ...] = ()

    @property
    def result_type(self) -> llvm_types.Type:
        """The type of the result."""
        return llvm_types.read(self.result)

    @property
    def symbols(self) -> dict[str, None]:
        """The symbols in the instructions, in their order."""
        lines = (line for block in self.blocks for line in block.lines)
        return dict.fromkeys(name for line in lines for name in _SYMBOL.findall(line))

    def text(self) -> str:
        """Return the definition, which is internal."""
        numbered = [f"{param} %v{number}" for number, param in enumerate(self.params)]
        params = ", ".join([*numbered, *self.extra_params])
        head = f"define internal {self.result} @{self.name}({params}) {self.attributes}".rstrip()
        body = "\n\n".join("\n".join([f"{block.label}:", *block.lines]) for block in self.blocks)
        return f"{head} {{\n{body}\n}}\n"


@dataclass
class ParsedModule:
    """
    A module of LLVM IR.

    Args:
        functions: The definitions, by name.
        other_lines: All other lines, in their order.
    """

    functions: dict[str, Definition]
    other_lines: list[str]

    def text(self) -> str:
        """Return the module's text."""
        return "\n".join([*self.other_lines, *(function.text() for function in self.functions.values())])

    def keep_reachable(self, root: str) -> None:
        """Remove functions that *root* does not reach, with their metadata; order the rest by first use."""
        kept, pending = {root: self.functions[root]}, [root]
        while pending:
            for name in kept[pending.pop(0)].symbols:
                if name in self.functions and name not in kept:
                    kept[name] = self.functions[name]
                    pending.append(name)
        removed = self.functions.keys() - kept.keys()
        self.functions = kept
        metadata = (
            line for line in self.other_lines if line.startswith("!") and removed & {*_SYMBOL.findall(line)}
        )
        dropped = {*metadata, *(line for line in self.other_lines if line.startswith(_DROPPED_LISTS))}
        self.other_lines = [line for line in self.other_lines if line not in dropped]


def parse_module(text: str) -> ParsedModule:
    """Return the module of *text*."""
    module = ParsedModule({}, [])
    lines = iter(text.splitlines())
    for line in lines:
        match = _HEAD.match(line)
        if match is None:
            module.other_lines.append(line)
            continue
        body: list[str] = []
        while (body_line := next(lines)) != "}":
            body.append(body_line)
        module.functions[match["name"]] = _parse_function(match, line, body)
    return module


def _parse_function(match: re.Match[str], line: str, body: list[str]) -> Definition:
    params, text_behind = llvm_types.split(line[match.end() :])
    # Parameters have no names in one dialect, and numbers in the other.
    params = [re.sub(r"\s*%\w+$", "", param) for param in params]
    # The first block has no label; its number follows those of the parameters.
    blocks = [Block(f"v{len(params)}")]
    for instruction in body:
        label = _LABEL.match(instruction)
        if label is not None:
            name = label["label"]
            blocks.append(Block(f"v{name}" if name.isdigit() else name))
        elif instruction.strip():
            blocks[-1].lines.append(_name_values(instruction))
    result = " ".join(word for word in match["before"].split() if word not in _LINKAGES)
    attributes = text_behind.rstrip().rstrip("{").strip()
    return Definition(match["name"], result, params, attributes, blocks)


def _name_values(instruction: str) -> str:
    """Return *instruction* with names, such as %v5 for %5, in place of numbers; strings are unchanged."""
    pieces = instruction.split('"')
    pieces[::2] = [_LOCAL.sub(r"%v\1", piece) for piece in pieces[::2]]
    return '"'.join(pieces)
