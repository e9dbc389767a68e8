"""
Rename symbols in LLVM IR to names that depend only on the program, not on the process.

A program is a compiled function with all functions that it calls, each in a module of its own.

Numba makes names unique by counters, hashes and addresses of the process, such as the v23 in
`_ZN4udfs6helperB3v23B54cw51…Ef`, so that the text of a kernel differs between processes. Each such name is
replaced by a name with a digest of the whole program, or of the module, and the position of the name in the
order of first use. Positions are unique, so that two names never become equal.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The hexadecimal digits of a SHA-256 that a name contains: 64 bits.
_DIGEST_CHARS = 16
_NUMBER = re.compile(r"\d+")
# In mangled names, the counter of the process is an ABI tag: "B3v23", with the length 3.
_COUNTER = re.compile(r"v\d+")
# A mangled type may contain a counter of the process, as a template argument list of one integer, such as
# "ILi123EE" for a record, or an address.
_PROCESS_NUMBER = re.compile(r"ILi\d+EE|0x[0-9a-f]{6,16}")
# The name of an array in shared memory ends in a counter of the process.
_SHARED = re.compile(r"(_cudapy_smem_)\d+")
# The name of a bytes constant ends in a hash, which depends on the process's hash seed.
_BYTES = re.compile(r"(\.bytes\.)-?\d+")
# A module begins with its name, which ends in a counter of the process: `; ModuleID = "saxpy$7"`.
_MODULE_ID = "; ModuleID = "
_MODULE_COUNTER = re.compile(r"\$\d+\Z")
# A label without quotes at the start of a line, such as `entry:`.
_LABEL = re.compile(r"^([^\s:;]+):", re.MULTILINE)
_UNQUOTED_SYMBOL = re.compile(r"@[-\w.$]")
_UNQUOTED_LOCAL = re.compile(r"%([-\w.$]+)")
_HIDDEN_LINKAGES = frozenset({"internal", "private"})


class RenamedProgram(NamedTuple):
    """
    The modules of one program under their new names.

    Args:
        texts: The LLVM IR of the modules, in the order in which they were passed.
        names: The new name of each renamed symbol by its old one. The new names are unique.
    """

    texts: tuple[str, ...]
    names: Mapping[str, str]


class QuotedModule:
    """
    The LLVM IR of one module as llvmlite writes it, split at quotes.

    llvmlite quotes every name and escapes quotes within. So the pieces with odd indices are names and
    strings, and the piece before each determines which: `define float @"f"(float %"x")` has the pieces
    `define float @`, `f`, `(float %`, `x` and `)`.

    Args:
        text: The LLVM IR of the module.

    Attributes:
        used: The symbols in the module, in the order of first use.
        defined: The symbols that the module defines, as keys.
        visible: The functions that the module defines, and that other modules may call.
        unstable: The symbols whose names depend on the process, and which the module defines or, for dynamic
            shared arrays, declares.
    """

    def __init__(self, text: str) -> None:
        self._pieces = text.split('"')
        if self._pieces[0].endswith(_MODULE_ID):
            self._pieces[1] = _MODULE_COUNTER.sub("", self._pieces[1])
        # If the text also has symbols without quotes, which llvmlite never writes, no symbol is renamed: the
        # spelling without quotes would be missed.
        self._quotes_all_symbols = not any(_UNQUOTED_SYMBOL.search(piece) for piece in self._pieces[::2])
        # The index of its piece and the name, for each use of a symbol.
        self._symbols: list[tuple[int, str]] = []
        self.defined: dict[str, None] = {}
        self.visible: list[str] = []
        unstable: set[str] = set()
        line = ""
        for index in range(1, len(self._pieces) - 1, 2):
            before = self._pieces[index - 1]
            # The start of the line, without the names: a quoted type may precede the function's name.
            line = before.rpartition("\n")[2] if "\n" in before else f"{line}{before}"
            if before.endswith("@"):
                name = self._pieces[index]
                self._symbols.append((index, name))
                if self._record_definition(name, line, self._pieces[index + 1]):
                    unstable.add(name)
        self.used = dict.fromkeys(name for _, name in self._symbols)
        self.unstable = [name for name in self.used if name in unstable] if self._quotes_all_symbols else []

    def _record_definition(self, name: str, line: str, after: str) -> bool:
        """
        Record whether the line of *name* defines it, and whether other modules may call it.

        Args:
            name: A symbol.
            line: The text before the symbol on its line, with the "@".
            after: The text from the symbol to the next quote.

        Returns:
            Whether the line defines or declares a symbol whose name depends on the process.
        """
        if line.startswith("define ") and line.index("@") == len(line) - 1:
            self.defined[name] = None
            if _HIDDEN_LINKAGES.isdisjoint(line.split()):
                self.visible.append(name)
            return _counter_tag(name) is not None
        # A variable is defined or declared at the start of a line: `@"x" = addrspace(3) global [8 x float]`.
        if line != "@" or not after.startswith(" = "):
            return False
        # The words before the type of the array.
        words = after[: after.find("[")].split()
        # A dynamic shared array is only declared, `external`, since the launch determines its size. Its name,
        # too, depends on the process.
        is_shared_array = "addrspace(3)" in words and _SHARED.fullmatch(name) is not None
        if "external" not in words:
            self.defined[name] = None
        elif not is_shared_array:
            return False
        return is_shared_array or _BYTES.fullmatch(name) is not None or _counter_tag(name) is not None

    def normalized_text(self, names: Mapping[str, str]) -> str:
        """
        Return the text with renamed symbols, and with numbers as the names of values, labels and types.

        Numba names values after inlined functions, and labels by a counter of the process. These names do not
        affect the compiled code: modules with equal normalized texts compile to the same code.

        Args:
            names: The new names of symbols by the old ones.
        """
        pieces = self._renamed_pieces(names)
        _number_names(pieces)
        return '"'.join(pieces)

    def renamed_text(self, names: Mapping[str, str]) -> str:
        """Return the text with the new *names* of symbols, by the old ones."""
        return '"'.join(self._renamed_pieces(names))

    def _renamed_pieces(self, names: Mapping[str, str]) -> list[str]:
        pieces = self._pieces.copy()
        for index, name in self._symbols:
            pieces[index] = names.get(name, name)
        if any("!DI" in piece for piece in pieces[::2]):
            # Debug information contains the names of symbols as strings. Other pieces stay: symbols, which
            # are renamed already, follow "@", values and types "%", and the contents of arrays " c".
            for index in range(1, len(pieces) - 1, 2):
                if not pieces[index - 1].endswith(("@", "%", " c")):
                    pieces[index] = names.get(pieces[index], pieces[index])
        return pieces


def _number_names(pieces: list[str]) -> None:
    """Replace the names of values, labels and types in a text that is split at its quotes by numbers."""
    numbers: dict[str, str] = {}
    # Names without quotes, such as `%p0` in the wrapper of an export, do not depend on the process, and stay.
    unquoted = {*_UNQUOTED_LOCAL.findall(" ".join(pieces[::2]))}

    def number_name(name: str) -> str:
        # No name in LLVM IR contains "\0", so that a number never equals a name.
        return name if name in unquoted else numbers.setdefault(name, f"\0{len(numbers)}")

    def number_label(match: re.Match[str]) -> str:
        return f"{number_name(match[1])}:"

    for index in range(0, len(pieces) - 1, 2):
        before = pieces[index]
        if ":" in before:
            pieces[index] = _LABEL.sub(number_label, before)
        # A quoted value or type follows "%"; a quoted label is between a line break and ":".
        if before.endswith("%") or (before.endswith("\n") and pieces[index + 2].startswith(":")):
            pieces[index + 1] = number_name(pieces[index + 1])
    pieces[-1] = _LABEL.sub(number_label, pieces[-1])


def topologically_sorted(modules: Sequence[QuotedModule]) -> list[QuotedModule]:
    """
    Return *modules* with callers before callees, except in cycles: the same order in each process.

    Callers come first, since NVVM drops a linkonce function that no earlier module references. Callees of one
    caller are in the order of first use.

    Args:
        modules: The modules of a program: the root, then its callees in any order.
    """
    root, *callees = modules
    # Numba keeps callees in a set: sort them by their texts without the names that depend on the process.
    blank = dict.fromkeys((name for module in modules for name in module.unstable), "")
    sorted_callees = sorted(callees, key=lambda module: module.normalized_text(blank))
    definers: dict[str, list[QuotedModule]] = {}
    for module in (root, *sorted_callees):
        for name in module.defined:
            definers.setdefault(name, []).append(module)
    finished: dict[QuotedModule, None] = {}
    entered: set[QuotedModule] = set()

    def walk(module: QuotedModule) -> None:
        if module not in entered:
            entered.add(module)
            undefined = (name for name in module.used if name not in module.defined)
            # Visit callees in reverse: `finished` has callees before callers, and is reversed below.
            for callee in reversed([callee for name in undefined for callee in definers.get(name, ())]):
                walk(callee)
            finished[module] = None

    walk(root)
    # Modules that the root does not reach are kept, after all others.
    return list(dict.fromkeys([*reversed(finished), *sorted_callees]))


def rename(modules: Sequence[QuotedModule], stable_symbols: Iterable[str] = ()) -> RenamedProgram:
    """
    Rename every symbol whose name depends on the process.

    Args:
        modules: All modules of the program, in an order that does not depend on the process.
        stable_symbols: Symbols that keep their names; they do not affect the new names of the others.
    """
    symbols = dict.fromkeys(name for module in modules for name in module.unstable)
    # Hash the program with new names that have a position, but no digest yet.
    blank = _new_names(symbols, "")
    program_hash = hashlib.sha256()
    for module in modules if symbols else ():
        program_hash.update(module.normalized_text(blank).encode() + b"\0")
    digest = program_hash.hexdigest()[:_DIGEST_CHARS]
    stable = set(stable_symbols)
    names = {old: new for old, new in _new_names(symbols, digest).items() if old not in stable}
    return RenamedProgram(tuple(module.renamed_text(names) for module in modules), names)


def rename_by_module(
    modules: Sequence[QuotedModule], stable_symbols: Iterable[str] = (), salt: str = ""
) -> RenamedProgram:
    """
    Rename every symbol whose name depends on the process, to one that depends only on its own module.

    A module gets the same text in every program that contains it: its names have a digest of its text, with
    the new names of its callees. Functions that call each other have no such digest, and two closures with
    equal code have the same one. A program with such functions gets the names of `rename`, without the salt.

    Args:
        modules: All modules of the program, callers before callees.
        stable_symbols: Symbols that keep their names.
        salt: Other inputs of the code, such as the compiler's options: if they differ, so do the names.
    """
    stable = set(stable_symbols)
    names: dict[str, str] = {}
    digests: set[str] = set()
    unstable = {name for module in modules for name in module.unstable}
    # Callees come first here, since the digest of a caller depends on their new names.
    for module in reversed(modules):
        own_symbols = module.unstable
        # In a cycle, a used symbol has no new name yet, which the digest needs. Two modules may also define
        # the same symbol, which then has a new name already.
        unnamed = unstable.difference(names, own_symbols).intersection(module.used)
        if unnamed or not names.keys().isdisjoint(own_symbols):
            return rename(modules, stable)
        text = module.normalized_text({**names, **_new_names(own_symbols, "")})
        digest = hashlib.sha256(f"{salt}\0{text}".encode()).hexdigest()[:_DIGEST_CHARS]
        if own_symbols and digest in digests:
            return rename(modules, stable)
        digests.add(digest)
        names |= _new_names(own_symbols, digest)
    names = {old: new for old, new in names.items() if old not in stable}
    return RenamedProgram(tuple(module.renamed_text(names) for module in modules), names)


def _new_names(symbols: Iterable[str], digest: str) -> dict[str, str]:
    """
    Return the new name of each symbol.

    If a name begins with another one, its new name begins with the new name of that one: numba-cuda finds the
    variable with a kernel's error code by the kernel's name and a suffix.
    """
    new_names = {name: _new_name(name, digest, position) for position, name in enumerate(symbols)}
    # The names that are prefixes of the current name, the shortest first. Sorting puts them before it.
    prefixes: list[str] = []
    for name in sorted(filter(_counter_tag, new_names)):
        while prefixes and not name.startswith(prefixes[-1]):
            prefixes.pop()
        if prefixes:
            new_names[name] = new_names[prefixes[-1]] + name[len(prefixes[-1]) :]
        prefixes.append(name)
    return new_names


def _new_name(name: str, digest: str, position: int) -> str:
    """Return *name* with *digest* (hexadecimal, or "") and *position* in place of its counter or hash."""
    shared = _SHARED.fullmatch(name)
    if shared is not None:
        # Shared arrays are recognised by their names, which have to end in a decimal number.
        return f"{shared[1]}{int(digest or '0', 16)}{position:04}"
    constant = _BYTES.fullmatch(name)
    if constant is not None:
        return f"{constant[1]}{digest}n{position}"
    start, end = _counter_tag(name) or (0, 0)
    counter = f"v{digest}n{position}"
    return f"{name[:start]}B{len(counter)}{counter}{_stable_types(name[end:])}"


def _counter_tag(name: str) -> tuple[int, int] | None:
    """
    Return the start and the end of the ABI tag with the counter in a mangled name; None if there is none.

    As numba-cuda's `itanium_mangler` writes names, "_Z" or "_ZN" and identifiers precede the tag, and each
    identifier and tag follows its length: "_ZN", "4udfs", "6helper", "B3v23".
    """
    if not name.startswith("_Z"):
        return None
    position = 3 if name.startswith("_ZN") else 2
    while number := _NUMBER.match(name, position):
        position = number.end() + int(number[0])
    tag = _NUMBER.match(name, position + 1) if name[position : position + 1] == "B" else None
    if tag is None:
        return None
    end = tag.end() + int(tag[0])
    return (position, end) if _COUNTER.fullmatch(name, tag.end(), end) else None


def _stable_types(types: str) -> str:
    """
    Return *types*, the end of a mangled name after the counter, without further ABI tags.

    If a type depends on the process, the result is "Ev": the end of the name, and no parameters.
    """
    position = 0
    while types.startswith("B", position) and (number := _NUMBER.match(types, position + 1)):
        position = number.end() + int(number[0])
    return "Ev" if _PROCESS_NUMBER.search(types) else types[position:]
