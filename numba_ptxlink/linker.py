"""
Link many inputs to one cubin, without a driver.

`link` checks its options, reads the inputs, and compiles CUDA C++ and Python functions (UDFs). `run.link`
then checks the inputs, merges PTX, plans the link and runs a tool. Each step is a module of `_link/`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arch import Arch, ArchLike
from ._config import CHECKS, FRONT_ENDS, INLINE, config
from ._formats.kinds import CU, LTOIR
from ._link import run
from ._link.backends import Target
from ._link.option_effects import check_compile_options
from ._link.read import read
from ._link.run import Linked
from ._tools.options import NVRTC, Options, checked_bools, link_flags
from ._tools.source_options import SourceOptions
from .errors import ConfigError, LinkError, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._artifacts.target_release import TargetRelease
    from ._config import Backend, Checks, FrontEndName, Inline
    from ._link.compile import PythonCode
    from ._link.read import Input
    from ._tools.nvrtc import INCLUDE_DIR

__all__ = ["INCLUDE_DIR", "Linked", "link"]

# The values of options that take one of several names; `_link.plan` checks the option `backend`.
_CHOICES = {"checks": CHECKS, "inline": INLINE, "front_end": FRONT_ENDS}


def __getattr__(name: str) -> Any:
    # Not imported at the top of the module, since links of PTX use neither attribute.
    if name == "PtxLinker":
        # numba-cuda uses this class in place of its own linker.
        from ._front_end import registry

        return registry.get("numba-cuda").package_module("linker").PtxLinker
    if name == "INCLUDE_DIR":
        from ._tools import nvrtc

        return nvrtc.INCLUDE_DIR
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def link(
    *inputs: Any,
    arch: ArchLike,
    lto: bool | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
    fma: bool | None = None,
    ftz: bool | None = None,
    prec_div: bool | None = None,
    prec_sqrt: bool | None = None,
    fast_math: bool | None = None,
    include_dirs: Sequence[Path | str] | Path | str = (),
    headers: Mapping[str, str] | None = None,
    defines: Mapping[str, str | None] | None = None,
    cxx_standard: str | None = None,
    name_expressions: Sequence[str] = (),
    nvrtc_flags: Sequence[str] = (),
    extra_flags: Sequence[str] = (),
    backend: Backend | None = None,
    checks: Checks | None = None,
    inline: Inline | None = None,
    cuda: str | tuple[int, int] | None = None,
    ptx_isa: str | tuple[int, int] | None = None,
    front_end: FrontEndName | None = None,
) -> Linked:
    """
    Link *inputs* to one cubin. Needs neither a GPU nor a driver. Thread-safe; the tools run without the GIL.

    Args:
        inputs: Paths; PTX or CUDA C++ as a `str` that has a line break, or that looks like code and is no
            path of a file; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or an archive; file
            objects; `LinkableCode` of numba-cuda; UDFs (functions with `@udf`); and paths of Python files,
            whose UDFs are linked. The device runtime is added if an input calls it.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. The default is True if an input is LTO-IR, or if there are
            several inputs and all are CUDA C++ or Python. With True, nvJitLink uses the LTO-IR in fat
            binaries, objects and archives, too; with False, their machine code or PTX.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Limit of registers per thread, 1 to 255.
        fma: Whether multiplications and additions are contracted to fused ones; the default of all tools is
            True. Fused instructions in PTX stay fused. The options from *fma* to *fast_math* apply to inputs
            that the link compiles: CUDA C++, Python and LTO-IR; *fma* to PTX as well. An option without
            effect on any input is refused; if it has no effect on some inputs, the log names them.
        ftz: Whether 32-bit subnormal numbers are flushed to zero.
        prec_div: Whether 32-bit divisions are rounded as by IEEE 754.
        prec_sqrt: Whether 32-bit square roots are rounded as by IEEE 754. Has no effect on LTO-IR, whose
            compiler chose the rounding of square roots already.
        fast_math: Whether to use fast arithmetic: *ftz* and *fma* are True, and *prec_div* and *prec_sqrt*
            False, if they are None; and mathematical functions in CUDA C++ and Python are approximate.
        include_dirs: A directory, or several, that `#include` searches before the toolkit's and this
            package's. `#include "..."` first searches the directory of the source file, or the working
            directory if the source is text.
        headers: Headers held in memory, by the name that `#include` uses.
        defines: Macros for CUDA C++ and their values; None defines a macro without a value.
        cxx_standard: The C++ standard, such as "c++20"; the default of NVRTC if None.
        name_expressions: C++ names of kernels and variables, such as "scale<float>" and "ns::count":
            templates are instantiated, and `lowered_names` of the result has the symbols. Each CUDA C++ input
            has to declare all of them.
        nvrtc_flags: Further options for NVRTC, also macros and folders. Flags for *arch*, *debug*,
            *lineinfo*, *max_registers*, *cxx_standard* or arithmetic are refused.
        extra_flags: Further flags: those of ptxas, such as "--verbose", apply whichever tool links; those of
            nvJitLink, such as "-Xnvvm=...", need nvJitLink as the tool. Flags for which there is a parameter
            here are refused.
        backend: "auto", "nvptxcompiler", "nvjitlink" or "pynvjitlink"; NUMBA_PTXLINK_BACKEND by default.
            Another tool is never used instead.
        checks: The declarations that are compared before the link. "all": those of PTX and CUDA C++ with each
            other, and those in manifests of exports with the other inputs; CUDA C++ that becomes LTO-IR is
            compiled once more for that, in a child process. "none": no comparison. PTX that is too new and
            cubins for another architecture are refused in any case: after nvJitLink has rejected such an
            input, later links in this process give wrong results or deadlock. NUMBA_PTXLINK_CHECKS by
            default, or "all".
        inline: The calls between PTX inputs that are inlined, if all inputs are PTX. "auto": calls of small
            functions and of functions with one caller; "all": calls of functions of any size, also within
            one input; "none": no call, and nvJitLink links. NUMBA_PTXLINK_INLINE by default, or "auto".
        cuda: The CUDA release of the driver that loads the cubin, such as "12.4", as for `export`. PTX, CUDA
            C++ and UDFs are linked without LTO, `Linked.ptx` has the lowest version that its text allows, and
            a compiler of that release makes the cubin. Other inputs are linked by this environment's linker,
            whose cubins need a driver of its major release.
        ptx_isa: Instead of *cuda*, the newest PTX version that the driver reads, such as "8.4".
        front_end: The front end that compiles UDFs whose decorator names none, as for `export`.

    Raises:
        ExportError: The PTX needs a newer version than *cuda* or *ptx_isa* allows.
        LinkError: An input could not be read, compiled or linked, the inputs contradict each other, or the
            backend cannot link them. The error has inputs, flags and log.
        AssembleError: A single PTX could not be assembled.
        ConfigError: *arch* is no GPU architecture, *cuda* or *ptx_isa* is not known, or *backend*, *checks*
            or *inline* is none of its choices, or another option is of the wrong type.
    """
    # The first call in a process sets up logging.
    config()
    target_release = None
    if cuda is not None or ptx_isa is not None:
        # Deferred: most links are for this environment, and the module imports the parser of PTX.
        from ._artifacts.target_release import TargetRelease

        target_release = TargetRelease.of(cuda, ptx_isa)
    gpu = Arch.of(arch)
    _check_choices({"checks": checks, "inline": inline, "front_end": front_end})
    checked_bools({"lto": lto})
    source_options = SourceOptions.checked(
        include_dirs=include_dirs,
        headers=headers,
        defines=defines,
        cxx_standard=cxx_standard,
        name_expressions=name_expressions,
        nvrtc_flags=nvrtc_flags,
    )
    options = Options(
        debug=debug,
        lineinfo=lineinfo,
        max_registers=max_registers,
        fma=fma,
        ftz=ftz,
        prec_div=prec_div,
        prec_sqrt=prec_sqrt,
        fast_math=fast_math,
        extra_flags=link_flags("extra_flags", extra_flags),
        backend=backend,
        checks=checks,
        inline=inline,
    ).checked()
    if not inputs:
        raise LinkError("link() needs at least one input.")
    non_python = [
        read(source, position) for position, source in enumerate(inputs, start=1) if not _is_python(source)
    ]
    python_sources = [source for source in inputs if _is_python(source)]
    uses_lto = _uses_lto(non_python, len(python_sources), requested=lto, target_release=target_release)
    options = options._replace(lto=uses_lto)
    option_warnings = check_compile_options(non_python, options, compiles_source=bool(python_sources))
    compiled_inputs, nvrtc_log, lowered_names = _compile(
        non_python, python_sources, gpu, options, source_options, front_end=front_end
    )
    # For another release, the linked PTX is lowered to a version that the release reads.
    target = (
        Target(gpu, target_release.release, target_release.reduce_version) if target_release else Target(gpu)
    )
    linked = run.link(compiled_inputs, target, options)
    log = "\n".join(filter(None, (nvrtc_log, linked.log, *option_warnings)))
    return replace(linked, log=log, lowered_names=lowered_names)


def _compile(
    non_python: Sequence[Input],
    python_sources: Sequence[Any],
    arch: Arch,
    options: Options,
    source_options: SourceOptions,
    *,
    front_end: str | None,
) -> tuple[Sequence[Input], str, dict[str, str]]:
    """
    Compile the CUDA C++ and Python of a link.

    Returns:
        The inputs, with all sources compiled; NVRTC's log; and the symbol of each of `name_expressions`.
    """
    has_sources = bool(python_sources) or any(source.kind == CU for source in non_python)
    # Even without sources, files have to go through `compile_sources`, which compares them with the manifests
    # beside them.
    if not has_sources and all(source.path is None for source in non_python):
        return non_python, "", {}
    # Deferred: a link of PTX in memory needs neither module.
    from ._link.compile import compile_sources
    from ._tools import nvrtc

    # Only CUDA C++ needs the toolkit's headers, and it takes long to find their folders in all packages.
    has_cxx = any(source.kind == CU for source in non_python)
    toolkit_dirs = nvrtc.toolkit_include_dirs() if has_cxx else ()
    folders = (*source_options.include_dirs, nvrtc.INCLUDE_DIR, *toolkit_dirs)
    source_options = source_options._replace(
        include_dirs=tuple(map(str, folders)), flags=(*options.to_flags(NVRTC), *source_options.flags)
    )
    python = _compile_python(python_sources, non_python, arch, front_end, options) if python_sources else []
    return compile_sources(
        non_python, python, arch, source_options, lto=options.lto, compares=options.checks_inputs
    )


def _check_choices(options: Mapping[str, Any]) -> None:
    """Check that each of *options* is None or one of its choices."""
    for option, chosen in options.items():
        if chosen is not None and chosen not in _CHOICES[option]:
            raise ConfigError(
                f"{option}={short_repr(chosen)} is unknown; choose {', '.join(_CHOICES[option])}."
            )


def _compile_python(
    sources: Sequence[Any], non_python: Sequence[Input], arch: Arch, front_end: str | None, options: Options
) -> list[PythonCode]:
    """Compile the UDFs among *sources*, all in one module, and each Python file."""
    # Deferred: most links have no Python.
    from .exporter import compile_udfs

    groups: list[tuple[str, Any]] = [
        (Path(source).name, Path(source)) for source in sources if not _is_udf(source)
    ]
    if udfs := [source for source in sources if _is_udf(source)]:
        groups.append(("<udfs>", udfs))
    # A UDF may name an LTO-IR file in `link=` that is also an input of this link. Such a file is not merged
    # into the UDF's code, since its symbols would be defined twice.
    linked_ltoir = {source.code for source in non_python if source.kind == LTOIR}
    return [
        compile_udfs(name, group, arch, options, front_end=front_end, linked_ltoir=linked_ltoir)
        for name, group in groups
    ]


def _is_udf(source: Any) -> bool:
    """Return whether *source* is a function with `@udf` or `@kernel`."""
    # If *source* is a UDF, the module of the class `Udf` is imported already.
    marks = sys.modules.get(f"{__package__}._export.marks")
    return marks is not None and isinstance(source, marks.Udf)


def _is_python(source: Any) -> bool:
    """Return whether *source* is a UDF, or the path of a Python file."""
    if _is_udf(source):
        return True
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source)
    return is_path and Path(source).suffix == ".py"


def _uses_lto(
    non_python: Sequence[Input],
    python_count: int,
    *,
    requested: bool | None,
    target_release: TargetRelease | None,
) -> bool:
    """Return whether a link uses LTO: by default for LTO-IR, or several inputs, all CUDA C++ or Python."""
    ltoir_names = tuple(source.name for source in non_python if source.kind == LTOIR)
    if target_release and requested:
        raise LinkError(
            f"Link-time optimisation uses the linker of this environment, which is not for "
            f"{target_release.description}; leave lto out."
        )
    if ltoir_names and (target_release or requested is False):
        raise LinkError(
            f"{', '.join(ltoir_names)} is LTO-IR, which is linked only with link-time optimisation by the "
            "linker of this environment; leave out lto=False and cuda, or link PTX, CUDA C++ or Python "
            "in its place.",
            inputs=ltoir_names,
        )
    if target_release:
        return False
    if requested is not None:
        return requested
    return bool(ltoir_names) or (
        len(non_python) + python_count > 1 and all(source.kind == CU for source in non_python)
    )
