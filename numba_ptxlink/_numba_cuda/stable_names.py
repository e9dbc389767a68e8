"""
Rename symbols in LLVM IR to names that depend only on the program, not on the process.

Numba makes names unique by counters, hashes and addresses of the process, such as the v23 in
`_ZN4udfs6helperB3v23B54cw51…Ef`, so the text of a kernel differs between processes. Each such name is
replaced by one with a digest of the whole program and its position in the order of first use. Positions are
unique, so two names never become equal.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DIGEST_CHARS = 16
_NUMBER = re.compile(r"\d+")
_COUNTER = re.compile(r"v\d+")
# A type without a name is mangled with a counter of the process, as a template argument list of one integer,
# such as "ILi123EE", or with an address.
_PROCESS_NUMBER = re.compile(r"ILi\d+EE|0x[0-9a-f]{6,16}")
_SHARED = re.compile(r"(_cudapy_smem_)\d+")
# The name of a bytes constant ends in a hash, which depends on the process's hash seed.
_BYTES = re.compile(r"(\.bytes\.)-?\d+")
_MODULE_ID = "; ModuleID = "
# The end of a module's name, such as "saxpy$7".
_MODULE_COUNTER = re.compile(r"\$\d+\Z")
_LABEL = re.compile(r"^([^\s:;]+):", re.MULTILINE)
_UNQUOTED_SYMBOL = re.compile(r"@[-\w.$]")
_UNQUOTED_LOCAL = re.compile(r"%([-\w.$]+)")
_HIDDEN_LINKAGES = frozenset({"internal", "private"})


class RenamedProgram(NamedTuple):
    """
    The modules of one program under their new names.

    Args:
        texts: The LLVM IR of the modules, in the order of the arguments.
        names: The new name of each renamed symbol by its old one. The new names are unique.
    """

    texts: tuple[str, ...]
    names: Mapping[str, str]


class QuotedModule:
    """
    The LLVM IR of one module as llvmlite writes it, split at quotes.

    llvmlite quotes every name and escapes quotes within, so that every second piece is a name or a string,
    and the piece before it determines which.

    Args:
        text: The LLVM IR of the module.

    Attributes:
        used: The symbols in the module, in the order of first use.
        defined: The symbols that the module defines.
        visible: The functions that it defines, and that other modules may call.
        unstable: The symbols whose names depend on the process, and are replaced.
    """

    def __init__(self, text: str) -> None:
        self._pieces = text.split('"')
        if self._pieces[0].endswith(_MODULE_ID):
            self._pieces[1] = _MODULE_COUNTER.sub("", self._pieces[1])
        # Other writers than llvmlite may spell a symbol with or without quotes: it then keeps its name, since
        # a replacement would miss the spelling without quotes.
        self._quotes_all_symbols = not any(_UNQUOTED_SYMBOL.search(piece) for piece in self._pieces[::2])
        self._symbols: list[tuple[int, str]] = []
        self.defined: dict[str, None] = {}
        self.visible: list[str] = []
        unstable: set[str] = set()
        line = ""
        for at in range(1, len(self._pieces) - 1, 2):
            before = self._pieces[at - 1]
            # A quoted type may precede the function's name on its line.
            line = before.rpartition("\n")[2] if "\n" in before else f"{line}{before}"
            if before.endswith("@"):
                name = self._pieces[at]
                self._symbols.append((at, name))
                if self._record_definition(name, line, self._pieces[at + 1]):
                    unstable.add(name)
        self.used = dict.fromkeys(name for _, name in self._symbols)
        self.unstable = [name for name in self.used if name in unstable] if self._quotes_all_symbols else []

    def _record_definition(self, name: str, line: str, after: str) -> bool:
        """
        Record *name* if the line defines it; return whether its name depends on the process.

        Args:
            name: A symbol.
            line: The text before the symbol on its line, with the "@".
            after: The text from the symbol to the next quote.
        """
        if line.startswith("define ") and line.index("@") == len(line) - 1:
            self.defined[name] = None
            if _HIDDEN_LINKAGES.isdisjoint(line.split()):
                self.visible.append(name)
            return _counter_tag(name) is not None
        # The definition of a variable begins with its name.
        if line != "@" or not after.startswith(" = "):
            return False
        words = after[: after.find("[")].split()
        # Dynamic shared memory has no size and is only declared: its memory comes from the launch.
        is_shared_array = "addrspace(3)" in words and _SHARED.fullmatch(name) is not None
        if "external" not in words:
            self.defined[name] = None
        elif not is_shared_array:
            return False
        return is_shared_array or _BYTES.fullmatch(name) is not None or _counter_tag(name) is not None

    def normalized_text(self, names: Mapping[str, str]) -> str:
        """
        Return the text with renamed symbols, and with values, labels and types numbered.

        Numba names values after inlined functions, and labels by a counter; neither affects the compiled
        code: modules whose normalized texts are equal compile to the same code.

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
        for at, name in self._symbols:
            pieces[at] = names.get(name, name)
        if any("!DI" in piece for piece in pieces[::2]):
            # Debug information has the names of symbols as strings. The contents of arrays follow " c", and
            # are unchanged.
            for at in range(1, len(pieces) - 1, 2):
                if not pieces[at - 1].endswith(("@", "%", " c")):
                    pieces[at] = names.get(pieces[at], pieces[at])
        return pieces


def _number_names(pieces: list[str]) -> None:
    """Replace the names of values, labels and types in a text that is split at its quotes by numbers."""
    numbers: dict[str, str] = {}
    # Other writers than llvmlite use names without quotes, which stay as they are.
    unquoted = {*_UNQUOTED_LOCAL.findall(" ".join(pieces[::2]))}

    def number_name(name: str) -> str:
        # No name contains "\0", so that a number never equals a name.
        return name if name in unquoted else numbers.setdefault(name, f"\0{len(numbers)}")

    def number_label(match: re.Match[str]) -> str:
        return f"{number_name(match[1])}:"

    for at in range(0, len(pieces) - 1, 2):
        before = pieces[at]
        if ":" in before:
            pieces[at] = _LABEL.sub(number_label, before)
        # A quoted value or type follows "%"; a quoted label is between a line break and ":".
        if before.endswith("%") or (before.endswith("\n") and pieces[at + 2].startswith(":")):
            pieces[at + 1] = number_name(pieces[at + 1])
    pieces[-1] = _LABEL.sub(number_label, pieces[-1])


def topologically_sorted(modules: Sequence[QuotedModule]) -> list[QuotedModule]:
    """
    Return *modules* in topological order, callers before callees except in cycles, otherwise by first use.

    Callers come first, since NVVM drops a linkonce function that no earlier module references.

    Args:
        modules: The modules of a program: the root, then its callees in any order.
    """
    root, *callees = modules
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
            # Callees are visited in reverse, since the order of `finished` is reversed below.
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
        stable_symbols: Symbols that keep their names. The new names of other symbols are the same for any
            choice of them.
    """
    symbols = dict.fromkeys(name for module in modules for name in module.unstable)
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

    A module gets the same text in every program that contains it: its names have a digest of its text and of
    the new names of its callees. If these digests are not unique, as for two functions that call each other
    or closures with equal code, the names are those of `rename`.

    Args:
        modules: All modules of the program, callers before callees.
        stable_symbols: Symbols that keep their names.
        salt: Other inputs of the code, such as the compiler's options, for which names have to differ.
    """
    stable = set(stable_symbols)
    names: dict[str, str] = {}
    digests: set[str] = set()
    unstable = {name for module in modules for name in module.unstable}
    for module in reversed(modules):
        own_symbols = module.unstable
        # A callee in a cycle has no new name yet, which the digest of the caller would need.
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
    """Return the new name of each symbol; if a name is a prefix of another, so are the new names."""
    new_names = {name: _new_name(name, digest, position) for position, name in enumerate(symbols)}
    stems: list[str] = []
    for name in sorted(filter(_counter_tag, new_names)):
        while stems and not name.startswith(stems[-1]):
            stems.pop()
        if stems:
            # numba-cuda looks up a kernel's error code by the kernel's name with a suffix.
            new_names[name] = new_names[stems[-1]] + name[len(stems[-1]) :]
        stems.append(name)
    return new_names


def _new_name(name: str, digest: str, position: int) -> str:
    shared = _SHARED.fullmatch(name)
    if shared is not None:
        # The names of shared arrays have to end with a decimal number.
        return f"{shared[1]}{int(digest or '0', 16)}{position:04}"
    constant = _BYTES.fullmatch(name)
    if constant is not None:
        return f"{constant[1]}{digest}n{position}"
    start, end = _counter_tag(name) or (0, 0)
    counter = f"v{digest}n{position}"
    return f"{name[:start]}B{len(counter)}{counter}{_stable_types(name[end:])}"


def _counter_tag(name: str) -> tuple[int, int] | None:
    """
    Return the start and end of the counter's ABI tag in a mangled name, None if there is none.

    The grammar is that of numba-cuda's `itanium_mangler`: length-prefixed identifiers, then ABI tags.
    """
    if not name.startswith("_Z"):
        return None
    at = 3 if name.startswith("_ZN") else 2
    while number := _NUMBER.match(name, at):
        at = number.end() + int(number[0])
    tag = _NUMBER.match(name, at + 1) if name[at : at + 1] == "B" else None
    if tag is None:
        return None
    end = tag.end() + int(tag[0])
    return (at, end) if _COUNTER.fullmatch(name, tag.end(), end) else None


def _stable_types(types: str) -> str:
    """Return the types at the end of a mangled name, without ABI tags; none if they depend on the process."""
    at = 0
    while types.startswith("B", at) and (number := _NUMBER.match(types, at + 1)):
        at = number.end() + int(number[0])
    # Some parameter types contain a number or an address of the process.
    return "Ev" if _PROCESS_NUMBER.search(types) else types[at:]
