"""
Parse the functions of an LLVM module that numba-cuda-mlir has written, in either dialect that NVVM reads.

A function consists of its first line and its blocks. Lines between functions are kept unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from numba_ptxlink._formats import llvm_types

# The start of a definition: `define internal i32 @f(`.
_HEAD = re.compile(r'^define (?P<before>.*?)@(?P<name>[\w.$]+|"[^"]+")\(')
# A label, `then:` or `5:`; LLVM 7 writes a numbered one as a comment, `; <label>:5:`.
_LABEL = re.compile(r"^(?:; <label>:)?(?P<label>[\w.$-]+):")
# A numbered value or label, `%5`.
_LOCAL = re.compile(r"%(\d+)\b")
_SYMBOL = re.compile(r'@("[^"]+"|[\w.$-]+)')
# The beginnings of lists of symbols that optimisation must keep, and of annotations. numba-cuda-mlir writes
# them for its own functions, which become internal here.
_DROPPED_LISTS = ("@llvm.used = ", "@llvm.compiler.used = ", "!nvvm.annotations = ")
# Words before a function's result type that are dropped, since `Definition.text` writes `internal`.
_LINKAGES = frozenset({"dso_local", "internal", "private", "linkonce_odr", "weak", "weak_odr", "linkonce"})


@dataclass
class Block:
    """A basic block: *label*, without the "%" of branches, and *lines*, the instructions."""

    label: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Definition:
    """
    The definition of a function.

    Args:
        name: The symbol, with its quotes if it has quotes in the module.
        result: The attributes and the type of the result, as text, without the linkage.
        params: The type and the attributes of each parameter, as text, without its name.
        attributes: The text after the parameters, such as attributes and debug information.
        blocks: The basic blocks. LLVM numbers parameters, blocks and values in one sequence; here, the names
            v0, v1 and so on replace the numbers, so that instructions can be added.
        extra_params: Parameters that are added to the function: the type and the name of each.
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
        """Return the text of the definition, as an internal function."""
        named_params = [f"{param} %v{number}" for number, param in enumerate(self.params)]
        params = ", ".join([*named_params, *self.extra_params])
        head = f"define internal {self.result} @{self.name}({params}) {self.attributes}".rstrip()
        body = "\n\n".join("\n".join([f"{block.label}:", *block.lines]) for block in self.blocks)
        return f"{head} {{\n{body}\n}}\n"


@dataclass
class ParsedModule:
    """
    A module of LLVM IR.

    Args:
        functions: The definitions, by symbol.
        other_lines: All lines outside of definitions, in their order.
    """

    functions: dict[str, Definition]
    other_lines: list[str]

    def text(self) -> str:
        """Return the module's text."""
        return "\n".join([*self.other_lines, *(function.text() for function in self.functions.values())])

    def keep_reachable(self, root: str) -> None:
        """Remove functions that *root* does not reach, and their metadata; sort the others by first use."""
        kept, pending = {root: self.functions[root]}, [root]
        while pending:
            for name in kept[pending.pop(0)].symbols:
                if name in self.functions and name not in kept:
                    kept[name] = self.functions[name]
                    pending.append(name)
        removed = self.functions.keys() - kept.keys()
        self.functions = kept
        self.other_lines = [
            line
            for line in self.other_lines
            if not line.startswith(_DROPPED_LISTS)
            and not (line.startswith("!") and removed & {*_SYMBOL.findall(line)})
        ]


def parse_module(text: str) -> ParsedModule:
    """Parse *text*, the LLVM IR of a module."""
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
    """
    Return a function's definition.

    Args:
        match: The match of `_HEAD` in *line*.
        line: The first line of the definition.
        body: The lines after it, without the closing brace.
    """
    params, text_after = llvm_types.split(line[match.end() :])
    # Remove the numbers of parameters, which one of the two dialects writes: `i32 %0`.
    params = [re.sub(r"\s*%\w+$", "", param) for param in params]
    # The first block has no label. Its number follows those of the parameters, 0, 1 and so on.
    blocks = [Block(f"v{len(params)}")]
    for instruction in body:
        label = _LABEL.match(instruction)
        if label is not None:
            name = label["label"]
            blocks.append(Block(f"v{name}" if name.isdigit() else name))
        elif instruction.strip():
            blocks[-1].lines.append(_name_values(instruction))
    result = " ".join(word for word in match["before"].split() if word not in _LINKAGES)
    attributes = text_after.rstrip().rstrip("{").strip()
    return Definition(match["name"], result, params, attributes, blocks)


def _name_values(instruction: str) -> str:
    """Return *instruction* with names, such as %v5 for %5, in place of numbers; strings are unchanged."""
    # The pieces with odd indices are strings and quoted names.
    pieces = instruction.split('"')
    pieces[::2] = [_LOCAL.sub(r"%v\1", piece) for piece in pieces[::2]]
    return '"'.join(pieces)
