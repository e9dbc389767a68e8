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

_MAX_LISTED = 5
# The options of arithmetic that hold for an input, by its kind: machine code has none left, and PTX leaves
# open which multiplications and additions are fused. Who makes LTO-IR chooses its square roots.
_HONOURED_OPTIONS = {CU: ARITHMETIC, LTOIR: {*ARITHMETIC} - {"prec_sqrt"}, PTX: ("fma",)}
# Instructions of PTX that are fused whatever the option says.
_FUSED_INSTRUCTION = rb"\b(?:fma\.|mad\.(?:\w+\.)*f(?:32|64)\b)"
_WEAK_LINKAGES = ("weak", "common")
# A parameter that PTX declares as floating point. It lies where bits do, but nvJitLink takes it for another.
_FLOAT_PARAM = rb"(\.param\s+(?:\.align\s+\d+\s+)?)\.f(32|64)\b"


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
        return self.defined and self.linkage not in _WEAK_LINKAGES

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
        _check_cubin_arch(source, arch)
    if options.compares:
        unique: dict[tuple[str, bytes], Input] = {}
        for source in inputs:
            unique.setdefault((source.kind, source.code), source)
        inputs = tuple(unique.values())
    ptx_inputs = [source for source in inputs if source.kind == PTX]
    if options.compares and len(ptx_inputs) > 1:
        check_ptx(ptx_inputs)
        inputs = tuple(map(_with_bit_params, inputs))
    if len(ptx_inputs) == len(inputs) and not options.lto:
        _check_undefined_variables(ptx_inputs)
    return tuple(inputs)


def check_compile_options(
    inputs: Sequence[Input], options: Options, *, compiles_source: bool = False
) -> list[str]:
    """
    Return, and log as warnings, which inputs keep what they were compiled with.

    Args:
        inputs: The inputs of a link.
        options: The options of the link.
        compiles_source: Whether something else is linked, for which all options hold.

    Raises:
        LinkError: An option holds for no input. Names the cure.
    """
    option_warnings = []
    requested = options.arithmetic
    for option, value in ({"prec_sqrt": False} | requested if options.fast_math else requested).items():
        unaffected = [each.name for each in inputs if option not in _HONOURED_OPTIONS.get(each.kind, ())]
        # LTO-IR may be in objects and libraries, too.
        if (
            len(unaffected) == len(inputs)
            and option in requested
            and not (compiles_source or (options.lto and option in _HONOURED_OPTIONS[LTOIR]))
        ):
            raise LinkError(
                f"{option}={value} holds for none of {', '.join(unaffected)}: machine code, the instructions "
                "of PTX and the square roots of LTO-IR have it already. Give it to what compiles them, or "
                "link CUDA C++ or Python.",
                inputs=tuple(unaffected),
            )
        if option == "fma" and not value:
            unaffected += [
                each.name for each in inputs if each.kind == PTX and re.search(_FUSED_INSTRUCTION, each.code)
            ]
        if unaffected:
            option_warnings.append(
                f"{option}={value} is for what the link compiles; all else is as before: "
                f"{', '.join(unaffected)}"
            )
    if not (compiles_source or any(each.kind in _HONOURED_OPTIONS for each in inputs)):
        names = ", ".join(each.name for each in inputs)
        option_warnings += [
            f"{option}={value} is for what the link compiles; machine code in {names} is as before"
            for option in ("debug", "lineinfo", "max_registers")
            if (value := getattr(options, option))
        ]
    for line in option_warnings:
        log.warning("%s", line)
    return option_warnings


def check_ptx(ptx_inputs: Sequence[Input]) -> None:
    """
    Compare the symbols of PTX, once for the same content.

    Raises:
        LinkError: They contradict each other, or one is defined twice. Names symbols, inputs and the cure.
    """
    key = cache.Key.of(
        "check",
        {
            "package": cache.package_version(),
            "names": [source.name for source in ptx_inputs],
            "inputs": [source.code for source in ptx_inputs],
        },
    )

    def make() -> cache.Entry:
        found = [symbol for source in ptx_inputs for symbol in symbols(source)]
        check_declarations_agree(found)
        check_duplicates(found)
        return cache.Entry({}, b"compared")

    cache.cached(key, make)


def _with_bit_params(source: Input) -> Input:
    code = re.sub(_FLOAT_PARAM, rb"\1.b\2", source.code) if source.kind == PTX else source.code
    return source if code == source.code else replace(source, code=code)


def _check_cubin_arch(source: Input, arch: Arch) -> None:
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


def _check_undefined_variables(ptx_inputs: Sequence[Input]) -> None:
    """Refuse variables that no PTX defines: compilers of whole programs make new ones of declarations."""
    if not any(may_lack_variables(source.code) for source in ptx_inputs):
        return
    defined = {
        variable.name
        for source in ptx_inputs
        for variable in source.module.variables
        if variable.defined and (variable.linkage or len(ptx_inputs) == 1)
    }
    declared = (name for source in ptx_inputs for name in source.module.undefined_variables)
    names = [name for name in dict.fromkeys(declared) if name not in defined]
    if names:
        raise LinkError(
            f"{', '.join(source.name for source in ptx_inputs)}: Undefined reference to "
            f"{', '.join(map(repr, names))}, which the compiler would define itself.",
            inputs=tuple(source.name for source in ptx_inputs),
            log="\n".join(f"error   : Undefined reference to '{name}'" for name in names),
        )


def check_declarations_agree(found: Iterable[Symbol]) -> None:
    """
    Refuse symbols that contradict each other, but for several definitions.

    Raises:
        LinkError: They do. Names symbols, inputs and the cure.
    """
    conflicts = []
    names: list[str] = []
    for occurrences in _repeated_symbols(found):
        conflict = (
            _kind_conflict(occurrences) or _prototype_conflict(occurrences) or _size_conflict(occurrences)
        )
        if conflict:
            conflicts.append(conflict)
            names += [symbol.origin for symbol in occurrences]
    if conflicts:
        raise LinkError("\n".join(conflicts[:_MAX_LISTED]), inputs=tuple(dict.fromkeys(names)))


def _repeated_symbols(found: Iterable[Symbol]) -> list[list[Symbol]]:
    """Return the symbols that occur more than once, by name."""
    named: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in found:
        named[symbol.name].append(symbol)
    return [occurrences for occurrences in named.values() if len(occurrences) > 1]


def check_duplicates(found: Iterable[Symbol]) -> None:
    """
    Refuse several definitions of a symbol that are not weak.

    Raises:
        LinkError: There are. Names the symbol, the inputs and the cure.
    """
    for occurrences in _repeated_symbols(found):
        strong = [symbol for symbol in occurrences if symbol.strong]
        if len(strong) > 1:
            raise LinkError(
                f"{strong[0].name} is defined {len(strong)} times: "
                f"{', '.join(symbol.place for symbol in strong)}. Which one a call reaches would depend on "
                "the order of the inputs. Rename one (of Python: name= of udf, abi_info={'abi_name': ...} of "
                "cuda.compile), leave one out, make it static, or mark it weak (inline in C++).",
                inputs=tuple(symbol.origin for symbol in strong),
            )


def _kind_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return what is wrong where a symbol is two things, "" where it is one."""
    forms = {(symbol.kind, symbol.space): symbol for symbol in reversed(occurrences)}
    if len(forms) < 2:
        return ""
    one, two = (
        f"a {f'variable (.{each.space})' if each.space else f'function (.{each.kind})'}, {each.place}"
        for each in sorted(forms.values(), key=lambda symbol: symbol.defined)[:2]
    )
    return (
        f"{occurrences[0].name} is {one}, and {two}. The code of one would use what the other has as "
        "something else: declare the symbol as it is defined, or rename one of the two."
    )


def _prototype_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return what is wrong where a function has two prototypes, "" where it has one."""
    # Definitions first: the others are held against them.
    ordered = sorted(occurrences, key=lambda symbol: not symbol.defined)
    typed = [(symbol.place, symbol.prototype) for symbol in ordered if symbol.prototype is not None]
    for place, other_prototype in typed[1:]:
        first, first_prototype = typed[0]
        if not _are_compatible(first_prototype, other_prototype):
            return (
                f"{first_prototype.name} has two prototypes:\n    {first_prototype}  {first}\n"
                f"    {other_prototype}  {place}\n"
                "A call across them would pass wrong values. Make the declaration agree "
                "with the definition: the types and their order, the result, and for structs the size and "
                "alignment. A half that is a scalar in one and __half in the other arrives with lto=True."
            )
    return ""


def _are_compatible(one: Prototype, other: Prototype) -> bool:
    if (one.result is None) != (other.result is None) or len(one.params) != len(other.params):
        return False
    pairs = list(zip(one.params, other.params, strict=True))
    results = [(one.result, other.result)] if one.result and other.result else []
    if not all((a.bits, a.size) == (b.bits, b.size) for a, b in (*pairs, *results)):
        return False
    # It decides in which register a struct starts.
    return all(a.align == b.align or not a.align or not b.align for a, b in pairs)


def _size_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return what is wrong where a variable has two sizes: code that has it larger writes past its end."""
    sized = sorted((symbol for symbol in occurrences if symbol.size), key=lambda symbol: symbol.size)
    # A common symbol becomes as large as the largest, but not larger than a definition.
    smallest = next((symbol for symbol in sized if symbol.linkage != "common"), None)
    if smallest is None or smallest.size == sized[-1].size:
        return ""
    largest = sized[-1]
    return (
        f"{largest.name} has {largest.size} bytes, {largest.place}, and {smallest.size} bytes, "
        f"{smallest.place}. Declare it with the same type and length in all inputs."
    )
