"""
Check the inputs of a link before a tool reads them.

`check_inputs` refuses PTX whose symbols contradict each other, which nvJitLink would link, and cubins for
another architecture: after nvJitLink has refused one, it deadlocks in this process. Nothing else in cubins is
checked, and other kinds of inputs are not checked: NVIDIA's tools report errors in them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink.assembler import may_have_undefined_variables
from numba_ptxlink.errors import LinkError

from .symbols import check_declarations_agree, check_duplicates, symbols

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import Options

    from .read import Input

# `.param .f32` is passed like `.param .b32`, but nvJitLink takes the two for different types: `.f32` is
# rewritten as `.b32`.
_FLOAT_PARAM = rb"(\.param\s+(?:\.align\s+\d+\s+)?)\.f(32|64)\b"


def check_inputs(inputs: Sequence[Input], arch: Arch, options: Options) -> tuple[Input, ...]:
    """
    Return the inputs to link, without repeated ones.

    Args:
        inputs: The inputs of the link, after CUDA C++ is compiled.
        arch: The architecture of the link.
        options: The options of the link. With checks="none", symbols are not compared, and repeated inputs
            remain.

    Raises:
        LinkError: An input cannot be linked, or inputs contradict each other. Names symbols, inputs and the
            cure.
    """
    for source in inputs:
        _check_cubin_arch(source, arch)
    if options.checks_inputs:
        unique: dict[tuple[str, bytes], Input] = {}
        for source in inputs:
            unique.setdefault((source.kind, source.code), source)
        inputs = tuple(unique.values())
    ptx_inputs = [source for source in inputs if source.kind == PTX]
    if options.checks_inputs and len(ptx_inputs) > 1:
        check_ptx(ptx_inputs)
        inputs = tuple(map(_with_bit_params, inputs))
    # A link of PTX alone may use ptxas or nvPTXCompiler, which accept undefined variables. Linkers reject
    # undefined variables.
    if len(ptx_inputs) == len(inputs) and not options.lto:
        _check_undefined_variables(ptx_inputs)
    return tuple(inputs)


def check_ptx(ptx_inputs: Sequence[Input], *, may_repeat_kernels: bool = False) -> None:
    """
    Compare the symbols of PTX inputs. The cache stores which inputs agree, so that they are compared once.

    Args:
        ptx_inputs: Inputs of the kind PTX.
        may_repeat_kernels: Whether several kernels may have one name: NVRTC makes a `static` kernel visible
            in PTX, but not in LTO-IR.

    Raises:
        LinkError: Symbols contradict each other, or one is defined twice. Names symbols, inputs and the cure.
    """
    key = cache.Key.of(
        "check",
        {
            "package": cache.package_version(),
            "names": [source.name for source in ptx_inputs],
            "inputs": [source.code for source in ptx_inputs],
            "repeated kernels": str(may_repeat_kernels),
        },
    )

    def make() -> cache.Entry:
        occurrences = [symbol for source in ptx_inputs for symbol in symbols(source)]
        check_declarations_agree(occurrences)
        check_duplicates(
            symbol for symbol in occurrences if not (may_repeat_kernels and symbol.kind == "entry")
        )
        # The existence of the entry says that the inputs agree; nothing reads its content.
        return cache.Entry({}, b"compared")

    cache.cached(key, make)


def _with_bit_params(source: Input) -> Input:
    """Return *source* with `.b32` and `.b64` as the types of floating-point parameters."""
    code = re.sub(_FLOAT_PARAM, rb"\1.b\2", source.code) if source.kind == PTX else source.code
    return source if code == source.code else replace(source, code=code)


def _check_cubin_arch(source: Input, arch: Arch) -> None:
    """Refuse cubins for another architecture: once nvJitLink refuses one, links in other threads deadlock."""
    if source.kind != CUBIN:
        return
    from numba_ptxlink._formats import elf

    sm = elf.machine(source.code)
    if sm is None:
        return
    major, minor = divmod(sm, 10)
    # A cubin runs on its own major architecture, from its own minor on; sm_101 was renamed sm_110.
    is_compatible = (major == arch.major and minor <= arch.minor) or {sm, arch.number} == {101, 110}
    # A cubin that uses features of one architecture runs on that architecture alone.
    variant = "a" if elf.is_accelerated(source.code) else ""
    if is_compatible and (not variant or arch.sm == f"sm_{sm}a"):
        return
    raise LinkError(
        f"{source.name} is machine code for sm_{sm}{variant}, which does not run on {arch.sm}, the "
        f"architecture of this link; compile it for {arch.sm}, or link for sm_{sm}{variant}.",
        inputs=(source.name,),
    )


def _check_undefined_variables(ptx_inputs: Sequence[Input]) -> None:
    """Refuse undefined `.extern` variables: in whole-program mode ptxas defines them as zeros."""
    if not any(may_have_undefined_variables(source.code) for source in ptx_inputs):
        return
    # Other modules cannot use a definition without linkage.
    defined = {
        variable.name
        for source in ptx_inputs
        for variable in source.module.variables
        if variable.defined and (variable.linkage or len(ptx_inputs) == 1)
    }
    declared = (name for source in ptx_inputs for name in source.module.undefined_variables)
    names = [name for name in dict.fromkeys(declared) if name not in defined]
    if names:
        inputs = tuple(source.name for source in ptx_inputs)
        raise LinkError(
            f"{', '.join(inputs)}: no input defines {', '.join(map(repr, names))}, declared .extern; ptxas "
            "would use zeros.",
            inputs=inputs,
            log="\n".join(f"error   : Undefined reference to '{name}'" for name in names),
        )
