"""
Make one PTX module of the inputs of a link, which the CPU compiles and runs.

PTX keeps its line numbers, so that a fault names the source line. nvJitLink makes PTX of LTO-IR. An input
that has only machine code is refused: the CPU cannot run it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._cpu.resources import excess_shared_reason, undefined_function_reason
from numba_ptxlink._formats import fatbin, ptx
from numba_ptxlink._formats.kinds import ARCHIVE, FATBIN, KINDS, LTOIR, OBJECT, PTX
from numba_ptxlink._formats.ptx import Span
from numba_ptxlink.errors import LinkError

from . import backends
from .check import check_inputs
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import Options

# `.target sm_90`: the text before the number, and the number.
_TARGET = re.compile(r"^(\s*\.target\s+sm_)(\d+)", re.MULTILINE)
# `.target sm_90, debug`: the text before the last word.
_DEBUG_TARGET = re.compile(r"^(\s*\.target\b[^\n]*?)\s*,\s*debug\b", re.MULTILINE)


def one_ptx(inputs: Sequence[Input], arch: Arch, options: Options) -> bytes:
    """
    Return one PTX module of the inputs of a link, with line numbers.

    Args:
        inputs: PTX, LTO-IR, and fat binaries, objects and libraries that contain PTX; no CUDA C++.
        arch: The architecture of the link: fat binaries may contain PTX for other architectures, too.
        options: The options of the link.

    Raises:
        LinkError: An input has no PTX, the inputs contradict each other, a called function is defined in no
            input, or a kernel has more static shared memory than a block can have.
    """
    # The CPU backend implements the functions of the device runtime.
    sources = [source for source in check_inputs(inputs, arch, options) if not backends.is_runtime(source)]
    # With lto=True, nvJitLink makes one PTX if all inputs have LTO-IR. Otherwise it makes PTX of the LTO-IR
    # inputs alone, which is combined with the PTX of the other inputs.
    text = _link_ltoir_to_ptx(sources, arch, options) if options.lto else None
    if text is None:
        ptx_inputs: list[Input] = []
        for source in sources:
            if source.kind != LTOIR:
                ptx_inputs += _ptx_in(source, arch)
        ltoir_inputs = [source for source in sources if source.kind == LTOIR]
        if ltoir_inputs:
            name = "+".join(source.name for source in ltoir_inputs)
            ptx_inputs.append(Input(PTX, name, _link_to_ptx(ltoir_inputs, arch, options)))
        text = ptx_inputs[0].code if len(ptx_inputs) == 1 else _combine(ptx_inputs, arch)
    module = ptx.parse(text.decode(errors="surrogateescape"))
    input_names = tuple(source.name for source in inputs)
    if reason := excess_shared_reason(module):
        raise LinkError(
            f"{reason}; use dynamic shared memory, whose size is an argument of the launch.",
            inputs=input_names,
            log=reason,
        )
    if reason := undefined_function_reason(module):
        cure = 'link the file that defines it, in C++ as extern "C"'
        if {PTX, LTOIR} <= {source.kind for source in sources}:
            cure = "compile all inputs to LTO-IR: beside PTX, LTO-IR keeps only what its own kernels call"
        raise LinkError(f"{reason}; {cure}.", inputs=input_names, log=reason)
    if options.max_registers:
        return _with_register_limit(module, options.max_registers).encode(errors="surrogateescape")
    return text


def _link_ltoir_to_ptx(sources: Sequence[Input], arch: Arch, options: Options) -> bytes | None:
    """
    Return the PTX that link-time optimisation makes of *sources*; None if an input has no LTO-IR.

    LTO-IR in objects and libraries is linked, too.
    """
    if any(source.kind == PTX for source in sources):
        return None
    try:
        return _link_to_ptx(sources, arch, options)
    except LinkError:
        # nvJitLink rejects inputs without LTO-IR. If all inputs are LTO-IR, the error has another cause.
        if all(source.kind == LTOIR for source in sources):
            raise
        return None


def _link_to_ptx(sources: Sequence[Input], arch: Arch, options: Options) -> bytes:
    from .run import link_to_ptx

    return link_to_ptx(sources, arch, options).code.rstrip(b"\0")


def _ptx_in(source: Input, arch: Arch) -> list[Input]:
    """Return the PTX that an input contains; of each fat binary, the PTX for the newest GPU up to *arch*."""
    if source.kind == PTX:
        return [replace(source, code=source.code.rstrip(b"\0"))]
    texts: list[bytes] = []
    newer_archs: set[int] = set()
    if source.kind in (FATBIN, OBJECT, ARCHIVE):
        # An object or library has a fat binary for each translation unit: search for all magic numbers.
        for match in re.finditer(re.escape(KINDS[FATBIN].magic), source.code):
            members = fatbin.ptx_members(source.code[match.start() :])
            usable = [member for member in members if member.arch <= arch.number]
            # Members are compared by their compute capability first.
            if usable:
                texts.append(max(usable).ptx)
            newer_archs |= {member.arch for member in members if member.arch > arch.number}
    if not texts:
        raise LinkError(_missing_ptx_message(source, arch, newer_archs), inputs=(source.name,))
    return [Input(PTX, source.name, text) for text in texts]


def _missing_ptx_message(source: Input, arch: Arch, newer_archs: Collection[int]) -> str:
    """
    Return the message for an input that has no PTX for *arch* or an older architecture.

    Args:
        source: The input.
        arch: The architecture of the link.
        newer_archs: The compute capabilities, such as 120, for which the input has PTX.
    """
    build = (
        f"build it for {arch.compute}, by nvcc -gencode arch={arch.compute},code={arch.compute} or by "
        f"numba-ptxlink export --arch {arch.sm}"
    )
    if not newer_archs:
        return (
            f"{source.name} ({source.kind}) has no PTX for {arch.compute}, and the CPU cannot run machine "
            f"code of a GPU; give its source or PTX, or {build}."
        )
    major, minor = divmod(min(newer_archs), 10)
    return (
        f"{source.name} ({source.kind}) has PTX only for newer GPUs than {arch.compute}; select a newer "
        f"GPU by numba-ptxlink cpu --arch {major}.{minor}, or {build}."
    )


def _combine(ptx_inputs: Sequence[Input], arch: Arch) -> bytes:
    """Return several PTX inputs as one module, from the cache if they were combined before."""
    from numba_ptxlink._fusion import NotCombinedError
    from numba_ptxlink._fusion.combine import combine

    key = cache.Key.of(
        "one ptx",
        {
            "package": cache.package_version(),
            "arch": arch.sm,
            "inputs": [source.code for source in ptx_inputs],
        },
    )

    def make() -> cache.Entry:
        text = combine([_prepare(source.text, arch) for source in ptx_inputs]).text_with_lines
        return cache.Entry({}, text.encode(errors="surrogateescape"))

    try:
        return cache.cached(key, make).code
    except NotCombinedError as error:
        names = tuple(source.name for source in ptx_inputs)
        raise LinkError(
            f"{', '.join(names)} cannot be combined into one PTX module for the CPU: {error}; correct the "
            "inputs, or give LTO-IR, CUDA C++ or Python with lto=True.",
            inputs=names,
        ) from error


def _prepare(text: str, arch: Arch) -> ptx.Module:
    """Return the module of *text* with at least *arch* as its target, without what debuggers read."""
    text = _DEBUG_TARGET.sub(r"\1", text)
    # `combine` rejects some pairs of targets, such as sm_60 and sm_90. PTX for an older architecture is valid
    # for a newer one, so all modules can get the newer target.
    text = _TARGET.sub(lambda match: f"{match[1]}{max(int(match[2]), arch.number)}", text, count=1)
    module = ptx.parse(text)
    sections = [
        item for item in module.items if isinstance(item, ptx.UnparsedItem) and item.keyword == "section"
    ]
    edits = {Span(item.start, item.end): "" for item in sections}
    return ptx.parse(module.replace(edits)) if edits else module


def _with_register_limit(module: ptx.Module, limit: int) -> str:
    """
    Return the text of *module* with *limit* as `.maxnreg` of the kernels that have none.

    The CPU device reads `.maxnreg` for the number of registers that it reports for a kernel.
    """
    starts = [
        function.body_span.start
        for function in module.functions
        if function.kind == "entry" and function.defined and ".maxnreg" not in function.directives
    ]
    return module.replace({Span(start, start): f".maxnreg {limit}\n" for start in starts})
