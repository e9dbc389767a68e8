"""
Refuse what would be linked wrongly without a word, and what spoils NVIDIA's libraries for this process.

nvJitLink links PTX with two prototypes of a function, two definitions of a symbol, or a variable of two
sizes: there is a line on stderr at most, and the cubin computes wrong results. So PTX is read and compared
before. Every other kind is opaque, and NVIDIA's tools tell what is wrong with it.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._formats.kinds import CU, CUBIN, LTOIR, PTX
from numba_ptxlink._tools.options import ARITHMETIC
from numba_ptxlink.assembler import may_lack_variables
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._tools.options import Options

    from .read import Input

log = logging.getLogger(__name__)

_MOST = 5
# The options of arithmetic that hold for an input, by its kind: machine code has none left, and PTX leaves
# open which multiplications and additions are fused. Who makes LTO-IR chooses its square roots.
_HEARD = {CU: ARITHMETIC, LTOIR: {*ARITHMETIC} - {"prec_sqrt"}, PTX: ("fma",)}
# Instructions of PTX that are fused whatever the option says.
_FUSED = rb"\b(?:fma\.|mad\.(?:\w+\.)*f(?:32|64)\b)"
_WEAK = ("weak", "common")
# A parameter that PTX declares as floating point. It lies where bits do, but nvJitLink takes it for another.
_FLOATING = rb"(\.param\s+(?:\.align\s+\d+\s+)?)\.f(32|64)\b"


class Symbol(NamedTuple):
    """
    A function or variable of PTX that other code can see.

    Args:
        origin: The input that has it.
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the code defines it, rather than only declares it.
        linkage: "visible", "extern", "weak", "common" or "".
        prototype: A device function's prototype.
        line: 1-based line of the text, 0 where nobody has the text.
        size: A variable's size in bytes, 0 where it is not known.
        space: Where a variable lies: "global", "managed", "const", "shared", or the type of a texture,
            surface or sampler; "" for functions.
    """

    origin: str
    name: str
    kind: str
    defined: bool
    linkage: str = ""
    prototype: Prototype | None = None
    line: int = 0
    size: int = 0
    space: str = ""

    @property
    def strong(self) -> bool:
        """Whether it is a definition that no other one may replace."""
        return self.defined and self.linkage not in _WEAK

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        where = f"{self.origin}:{self.line}" if self.line else self.origin
        return f"{'defined' if self.defined else 'declared'} in {where}"


def symbols(source: Input) -> list[Symbol]:
    """Return the symbols of PTX, a definition in the place of its declarations."""
    # A function is declared, as what its alias stands for, before the alias, which defines it.
    aliases = {alias.name for alias in source.module.aliases}
    listed = []
    for each in source.module.functions:
        aliased = each.name in aliases
        if each.linkage or each.kind == "entry" or aliased:
            defined, linkage = (True, "visible") if aliased else (each.defined, each.linkage)
            prototype = each.prototype if each.kind == "func" else None
            listed.append(Symbol(source.name, each.name, each.kind, defined, linkage, prototype, each.line))
    for variable in source.module.variables:
        if variable.linkage:
            symbol = Symbol(source.name, variable.name, "variable", variable.defined, variable.linkage)
            listed.append(symbol._replace(line=variable.line, size=variable.size, space=variable.memory))
    found: dict[tuple[str, str], Symbol] = {}
    for symbol in listed:
        key = symbol.name, symbol.kind
        if symbol.defined or key not in found:
            found[key] = symbol._replace(line=0) if source.compiled else symbol
    return list(found.values())


def check(inputs: Sequence[Input], arch: Arch, options: Options) -> tuple[Input, ...]:
    """
    Return the inputs to link, each once.

    Args:
        inputs: The inputs of the link, none of them CUDA C++.
        arch: The architecture of the link.
        options: The options of the link. Where they do not compare, only what spoils NVIDIA's libraries is
            refused.

    Raises:
        LinkError: An input is not to be linked, or inputs contradict each other. Names symbols, inputs and
            the cure.
    """
    for source in inputs:
        _refuse_other_machine(source, arch)
    if options.compares:
        unique: dict[tuple[str, bytes], Input] = {}
        for source in inputs:
            unique.setdefault((source.kind, source.code), source)
        inputs = tuple(unique.values())
    texts = [source for source in inputs if source.kind == PTX]
    if options.compares and len(texts) > 1:
        _compare_once(texts)
        inputs = tuple(map(_respelled, inputs))
    if len(texts) == len(inputs) and not options.lto:
        _refuse_undefined_variables(texts)
    return tuple(inputs)


def unheard(inputs: Sequence[Input], options: Options, *, heard: bool = False) -> list[str]:
    """
    Return, and log as warnings, which inputs keep what they were compiled with.

    Args:
        inputs: The inputs of a link.
        options: The options of the link.
        heard: Whether something else is linked, for which all options hold.

    Raises:
        LinkError: An option holds for no input. Names the cure.
    """
    left = []
    asked = options.arithmetic
    for option, value in ({"prec_sqrt": False} | asked if options.fast_math else asked).items():
        others = [each.name for each in inputs if option not in _HEARD.get(each.kind, ())]
        # LTO-IR may be in objects and libraries, too.
        if (
            len(others) == len(inputs)
            and option in asked
            and not (heard or (options.lto and option in _HEARD[LTOIR]))
        ):
            raise LinkError(
                f"{option}={value} holds for none of {', '.join(others)}: machine code, the instructions of "
                "PTX and the square roots of LTO-IR have it already. Give it to what compiles them, or link "
                "CUDA C++ or Python.",
                inputs=tuple(others),
            )
        if option == "fma" and not value:
            others += [each.name for each in inputs if each.kind == PTX and re.search(_FUSED, each.code)]
        if others:
            left.append(
                f"{option}={value} is for what the link compiles; all else is as before: {', '.join(others)}"
            )
    if not (heard or any(each.kind in _HEARD for each in inputs)):
        names = ", ".join(each.name for each in inputs)
        left += [
            f"{option}={value} is for what the link compiles; machine code in {names} is as before"
            for option in ("debug", "lineinfo", "max_registers")
            if (value := getattr(options, option))
        ]
    for line in left:
        log.warning("%s", line)
    return left


def _compare_once(texts: Sequence[Input]) -> None:
    """Compare PTX, once for the same content."""
    key = cache.Key.of(
        "check",
        {
            "package": cache.package_version(),
            "names": [source.name for source in texts],
            "inputs": [source.code for source in texts],
        },
    )

    def make() -> cache.Entry:
        found = [symbol for source in texts for symbol in symbols(source)]
        compare(found)
        refuse_duplicates(found)
        return cache.Entry({}, b"compared")

    cache.cached(key, make)


def _respelled(source: Input) -> Input:
    code = re.sub(_FLOATING, rb"\1.b\2", source.code) if source.kind == PTX else source.code
    return source if code == source.code else replace(source, code=code)


def _refuse_other_machine(source: Input, arch: Arch) -> None:
    """Refuse machine code for other GPUs: once nvJitLink refuses it, other threads wait in it for ever."""
    if source.kind != CUBIN:
        return
    from numba_ptxlink._formats import elf

    sm = elf.machine(source.code)
    if sm is None:
        return
    major, minor = divmod(sm, 10)
    # Machine code runs on its own major architecture, from its own minor on; sm_101 was renamed sm_110.
    runs = (major == arch.major and minor <= arch.minor) or {sm, arch.number} == {101, 110}
    # What uses features of one architecture runs on that one alone.
    own = "a" if elf.is_accelerated(source.code) else ""
    if runs and (not own or arch.sm == f"sm_{sm}a"):
        return
    raise LinkError(
        f"{source.name} holds machine code for sm_{sm}{own}, which does not run on {arch.sm}, the "
        f"architecture of this link; generate it for {arch.sm}, or link for its own.",
        inputs=(source.name,),
    )


def _refuse_undefined_variables(texts: Sequence[Input]) -> None:
    """Refuse variables that no PTX defines: compilers of whole programs make new ones of declarations."""
    if not any(may_lack_variables(source.code) for source in texts):
        return
    defined = {
        variable.name
        for source in texts
        for variable in source.module.variables
        if variable.defined and (variable.linkage or len(texts) == 1)
    }
    declared = (name for source in texts for name in source.module.undefined_variables)
    names = [name for name in dict.fromkeys(declared) if name not in defined]
    if names:
        raise LinkError(
            f"{', '.join(source.name for source in texts)}: Undefined reference to "
            f"{', '.join(map(repr, names))}, which the compiler would define itself.",
            inputs=tuple(source.name for source in texts),
            log="\n".join(f"error   : Undefined reference to '{name}'" for name in names),
        )


def compare(found: Iterable[Symbol]) -> None:
    """
    Refuse symbols that contradict each other, but for several definitions.

    Raises:
        LinkError: They do. Names symbols, inputs and the cure.
    """
    complaints = []
    names: list[str] = []
    for several in _several(found):
        complaint = _kinds(several) or _prototypes(several) or _sizes(several)
        if complaint:
            complaints.append(complaint)
            names += [symbol.origin for symbol in several]
    if complaints:
        raise LinkError("\n".join(complaints[:_MOST]), inputs=tuple(dict.fromkeys(names)))


def _several(found: Iterable[Symbol]) -> list[list[Symbol]]:
    """Return the symbols that occur more than once, by name."""
    named: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in found:
        named[symbol.name].append(symbol)
    return [several for several in named.values() if len(several) > 1]


def refuse_duplicates(found: Iterable[Symbol]) -> None:
    """
    Refuse several definitions of a symbol that are not weak.

    Raises:
        LinkError: There are. Names the symbol, the inputs and the cure.
    """
    for several in _several(found):
        strong = [symbol for symbol in several if symbol.strong]
        if len(strong) > 1:
            raise LinkError(
                f"{strong[0].name} is defined {len(strong)} times: "
                f"{', '.join(symbol.place for symbol in strong)}. Which one a call reaches would depend on "
                "the order of the inputs. Rename one (of Python: name= of udf, abi_info={'abi_name': ...} of "
                "cuda.compile), leave one out, make it static, or mark it weak (inline in C++).",
                inputs=tuple(symbol.origin for symbol in strong),
            )


def _kinds(several: Sequence[Symbol]) -> str:
    """Return what is wrong where a symbol is two things, "" where it is one."""
    forms = {(symbol.kind, symbol.space): symbol for symbol in reversed(several)}
    if len(forms) < 2:
        return ""
    one, two = (
        f"a {f'variable (.{each.space})' if each.space else f'function (.{each.kind})'}, {each.place}"
        for each in sorted(forms.values(), key=lambda symbol: symbol.defined)[:2]
    )
    return (
        f"{several[0].name} is {one}, and {two}. The code of one would use what the other has as "
        "something else: declare the symbol as it is defined, or rename one of the two."
    )


def _prototypes(several: Sequence[Symbol]) -> str:
    """Return what is wrong where a function has two prototypes, "" where it has one."""
    # Definitions first: the others are held against them.
    ordered = sorted(several, key=lambda symbol: not symbol.defined)
    typed = [(symbol.place, symbol.prototype) for symbol in ordered if symbol.prototype is not None]
    for place, theirs in typed[1:]:
        first, ours = typed[0]
        if not _agree(ours, theirs):
            return (
                f"{ours.name} has two prototypes:\n    {ours}  {first}\n    {theirs}  {place}\n"
                "A call across them would pass wrong values. Make the declaration agree "
                "with the definition: the types and their order, the result, and for structs the size and "
                "alignment. A half that is a scalar in one and __half in the other arrives with lto=True."
            )
    return ""


def _agree(one: Prototype, other: Prototype) -> bool:
    if (one.result is None) != (other.result is None) or len(one.params) != len(other.params):
        return False
    pairs = list(zip(one.params, other.params, strict=True))
    results = [(one.result, other.result)] if one.result and other.result else []
    if not all((mine.bits, mine.size) == (yours.bits, yours.size) for mine, yours in (*pairs, *results)):
        return False
    # It decides in which register a struct starts.
    return all(mine.align == yours.align or not mine.align or not yours.align for mine, yours in pairs)


def _sizes(several: Sequence[Symbol]) -> str:
    """Return what is wrong where a variable has two sizes: code that has it larger writes past its end."""
    sized = sorted((symbol for symbol in several if symbol.size), key=lambda symbol: symbol.size)
    # A common symbol becomes as large as the largest, but not larger than a definition.
    smallest = next((symbol for symbol in sized if symbol.linkage != "common"), None)
    if smallest is None or smallest.size == sized[-1].size:
        return ""
    largest = sized[-1]
    return (
        f"{largest.name} has {largest.size} bytes, {largest.place}, and {smallest.size} bytes, "
        f"{smallest.place}. Declare it with the same type and length in all inputs."
    )
