"""
Compile CUDA C++ by NVRTC, and compare what it declares with what exports define.

PTX of CUDA 13 spells `float` and `int` alike, so that a call through a wrong declaration of the same width
links. NVRTC knows the declared types: assertions about them, appended to the source, generate no code.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import LinkError

from . import declarations, manifests
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.nvrtc import Compiled

    from .declarations import Declared

log = logging.getLogger(__name__)


class Program(NamedTuple):
    """
    The inputs of a link, none of them a source.

    Args:
        inputs: PTX, LTO-IR and what is opaque.
        log: NVRTC's messages.
        lowered_names: The symbol of each requested name expression.
    """

    inputs: tuple[Input, ...]
    log: str
    lowered_names: dict[str, str]


class PythonCode(NamedTuple):
    """
    Python functions that the exporter has compiled.

    Args:
        input: Their code.
        defined: What they define.
        called: What they call and leave to other inputs, as they declare it; the origins are the callers.
    """

    input: Input
    defined: tuple[Declared, ...]
    called: tuple[Declared, ...]


def compile_sources(
    sources: Sequence[Input],
    python: Sequence[PythonCode],
    arch: Arch,
    options: SourceOptions,
    *,
    lto: bool,
    compares: bool = True,
) -> Program:
    """
    Compile the CUDA C++ among *sources*, and join the rest and *python* to it.

    Args:
        sources: Inputs of any kind.
        python: The Python functions of the link.
        arch: The GPU.
        options: How to compile CUDA C++.
        lto: Whether to compile it to LTO-IR, rather than to PTX.
        compares: Whether what sources declare is compared with manifests, headers and Python functions.

    Raises:
        LinkError: NVRTC refused a source, or a declaration contradicts what is linked.
    """
    known: list[Declared] = []
    called: list[Declared] = []
    exports: dict[Input, manifests.Manifest] = {}
    if compares:
        called = [each for code in python for each in code.called]
        known = [each for code in python for each in code.defined]
        exports = {source: manifest for source in sources if (manifest := manifests.of(source))}
        for manifest in exports.values():
            known += declarations.declarations_of(manifest)
        for extern in called:
            declarations.check(extern.origin, {extern.name: extern.types}, known)
    inputs: list[Input] = []
    logs: list[str] = []
    lowered: dict[str, str] = {}
    kind = LTOIR if lto else PTX
    for source in sources:
        if source.kind != CU:
            inputs.append(source)
            continue
        included = _included(source, options) if (*exports, *known, *called) else {}
        manifests.check_headers(list(exports.values()), included.items())
        # A header of an export declares all of its functions: those that other text names are compared.
        own = [text for path, text in included.items() if not manifests.is_generated(path, text)]
        compiled = _compile_as_declared(source, own, arch, kind, options, known=known, wanted=called)
        logs.append(compiled.log)
        lowered.update(compiled.lowered_names)
        inputs.append(Input(kind, source.name, compiled.code, compiled=True))
    inputs += (code.input for code in python)
    manifests.check_definitions(exports, (each for each in inputs if each.compiled and each.kind == PTX))
    return Program(tuple(inputs), "\n".join(filter(None, logs)), lowered)


def _included(source: Input, options: SourceOptions) -> dict[str, bytes]:
    """Return what *source* can include but the toolkit's headers, by path, and by name what is in memory."""
    toolkit = tuple(f"{folder}/" for folder in nvrtc.toolkit_include_dirs())
    folder = (source.path or Path(source.name)).parent
    files = includes.of(source.code, folder, options.include_dirs, dict(options.headers)).files
    held = {name: text.encode() for name, text in options.headers}
    return held | {path: Path(path).read_bytes() for path in files if not path.startswith(toolkit)}


def _compile_as_declared(
    source: Input,
    included: Sequence[bytes],
    arch: Arch,
    output: str,
    options: SourceOptions,
    *,
    known: Sequence[Declared],
    wanted: Sequence[Declared],
) -> Compiled:
    """
    Compile *source*; compare its declarations of *known* functions, and its definitions of *wanted* ones.

    Costs a second compilation only where the first one fails.
    """
    texts = [source.code, *map(os.fsencode, options.arguments()), *included]
    named = declarations.named_in(texts, (*known, *wanted))
    if not named:
        return compile_source(source, arch, output, options)
    try:
        asserted = replace(source, code=source.code + declarations.assertions(named).encode())
        return compile_source(asserted, arch, output, options)
    except LinkError as error:
        suspects = declarations.failed_in(error.log, named)
    compiled = compile_source(source, arch, output, options)
    if suspects:
        module = parse(compile_source(source, arch, PTX, options).code.decode(errors="replace"))
        # A function of that name may be another one: static, or one of C++, whose symbol is not the name.
        defined = {function.name: function.defined for function in module.functions}
        wrong = [each for each in suspects if each not in wanted and defined.get(each.name) is False]
        declarations.refuse(source.name, wrong)
        for each in suspects:
            if each in wanted and defined.get(each.name):
                own = replace(each, declaration=each.name, origin=source.name)
                declarations.refuse(each.origin, [own])
    return compiled


@dataclass(frozen=True)
class SourceOptions:
    """
    The options for compiling CUDA C++.

    Args:
        include_dirs: Directories that `#include` searches, in order.
        headers: Headers held in memory, as pairs of the name that `#include` uses and the text.
        defines: Macros, as pairs of name and value; None defines without a value.
        cxx_standard: The C++ standard, such as "c++20"; None for NVRTC's default.
        name_expressions: Names of functions, variables and template instances whose symbols to return.
        flags: Further NVRTC options.
    """

    include_dirs: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    defines: tuple[tuple[str, str | None], ...] = ()
    cxx_standard: str | None = None
    name_expressions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def arguments(self) -> tuple[str, ...]:
        """Return the options for NVRTC, without include directories."""
        return (
            *((f"--std={self.cxx_standard}",) if self.cxx_standard else ()),
            *(
                f"--define-macro={name}" + ("" if value is None else f"={value}")
                for name, value in self.defines
            ),
            *self.flags,
        )


def compile_source(source: Input, arch: Arch, output: str, options: SourceOptions) -> Compiled:
    """
    Compile CUDA C++ to *output*; its warnings are logged.

    Raises:
        LinkError: NVRTC refused the source or an option. Carries its log.
    """
    compiled = nvrtc.compile_source(
        source.code,
        source.name,
        arch,
        output=output,
        flags=options.arguments(),
        include_dirs=options.include_dirs,
        headers=dict(options.headers),
        name_expressions=options.name_expressions,
        folder=source.path and source.path.parent,
    )
    if compiled.log:
        log.warning("%s: %s", source.name, compiled.log)
    return compiled
