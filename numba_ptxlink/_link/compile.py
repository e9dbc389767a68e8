"""
Compile the CUDA C++ of a link by NVRTC, and compare its declarations with the functions of exports.

`declarations` writes assertions about the declared types, which are appended to a source.
Before link-time optimisation, each source is also compiled to PTX, whose prototypes are compared.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import LinkError

from . import declarations, manifests
from .check import check_ptx
from .read import Input
from .symbols import Symbol, check_duplicates, symbols

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._tools.source_options import SourceOptions

    from .declarations import DeclaredFunction

log = logging.getLogger(__name__)

# Without optimisation, which takes seconds for some sources, NVRTC takes hardly longer than its preprocessor.
_UNOPTIMISED = "--Ofast-compile=max"


class PythonCode(NamedTuple):
    """
    Python functions that the exporter has compiled.

    Args:
        input: The code.
        defined: The functions that the code defines.
        called: The functions of other inputs that the code calls, as it declares them; the origins are the
            callers.
    """

    input: Input
    defined: tuple[DeclaredFunction, ...]
    called: tuple[DeclaredFunction, ...]


def compile_sources(
    sources: Sequence[Input],
    python: Sequence[PythonCode],
    arch: Arch,
    options: SourceOptions,
    *,
    lto: bool,
    compares: bool = True,
) -> tuple[tuple[Input, ...], str, dict[str, str]]:
    """
    Compile the CUDA C++ among *sources*, and return it with the other inputs and *python*.

    Args:
        sources: Inputs of any kind.
        python: The Python functions of the link.
        arch: The GPU.
        options: How to compile CUDA C++.
        lto: Whether to compile it to LTO-IR, rather than to PTX.
        compares: Whether declarations are compared with manifests, headers and Python functions, and before
            link-time optimisation with those of the other sources and of PTX.

    Returns:
        The inputs without CUDA C++; NVRTC's messages; and the symbol of each requested name expression.

    Raises:
        LinkError: NVRTC rejected a source, or a declaration contradicts a function that is linked.
    """
    linked_functions: list[DeclaredFunction] = []
    required: list[DeclaredFunction] = []
    exports: dict[Input, manifests.Manifest] = {}
    if compares:
        required = [function for code in python for function in code.called]
        linked_functions = [function for code in python for function in code.defined]
        exports = {source: manifest for source in sources if (manifest := manifests.find(source))}
        for manifest in exports.values():
            linked_functions += declarations.declarations_of(manifest)
        for extern in required:
            declarations.check_declared_types(extern.origin, {extern.name: extern.types}, linked_functions)
    inputs: list[Input] = []
    logs: list[str] = []
    lowered: dict[str, str] = {}
    kind = LTOIR if lto else PTX
    sources = _without_repeated(sources, options)
    ptx_results = _start_ptx_compilations(sources, arch, options) if lto and compares else []
    for source in sources:
        if source.kind != CU:
            inputs.append(source)
            continue
        assertions = _assertions_for(source, options, exports, linked_functions, required)
        compiled, nvrtc_log = _compile_as_declared(source, arch, kind, options, assertions)
        logs += [compiled.log, nvrtc_log]
        lowered |= compiled.meta["lowered_names"]
        inputs.append(Input(kind, source.name, compiled.code, compiled=True))
    if ptx_results:
        ptx_inputs = {source.code: source for source in (result.result() for result in ptx_results)}
        check_ptx([*ptx_inputs.values()], may_repeat_kernels=True)
    inputs += (code.input for code in python)
    if exports:
        _check_definitions(exports, inputs)
    return tuple(inputs), "\n".join(filter(None, logs)), lowered


def _without_repeated(sources: Sequence[Input], options: SourceOptions) -> list[Input]:
    """Return *sources* without repeated CUDA C++, in whose LTO-IR nvJitLink would find two definitions."""
    codes = [source.code for source in sources]
    unique, contents = [], set()
    for source in sources:
        if source.kind == CU and codes.count(source.code) > 1:
            content = options.content_of(source.code, _folder_of(source))
            if content in contents:
                continue
            if content is not None:
                contents.add(content)
        unique.append(source)
    return unique


def _start_ptx_compilations(
    sources: Sequence[Input], arch: Arch, options: SourceOptions
) -> list[Future[Input]]:
    """
    Start to compile the CUDA C++ among *sources* to PTX, only to compare it; return it with other PTX.

    nvJitLink does not compare prototypes in LTO-IR, and this package does not read LTO-IR. So NVRTC compiles
    each source once more, in child processes, since within a process it compiles one source at a time. If
    there is only one input to compare, or only PTX, nothing is compiled.
    """
    compared = [source for source in sources if source.kind in (CU, PTX)]
    if len(compared) < 2 or all(source.kind == PTX for source in compared):
        return []
    # Deferred: most links compile one source.
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor()
    results = [threads.submit(_compile_to_ptx, source, arch, options) for source in compared]
    threads.shutdown(wait=False)
    return results


def _compile_to_ptx(source: Input, arch: Arch, options: SourceOptions) -> Input:
    """Return *source* as PTX without optimisation: only its symbols are read."""
    if source.kind == PTX:
        return source
    try:
        code = _compile(source, arch, PTX, options._replace(flags=(*options.flags, _UNOPTIMISED))).code
    except LinkError:
        # An older NVRTC does not have the option, and some code compiles only with optimisation.
        code = _compile(source, arch, PTX, options).code
    return Input(PTX, source.name, code, compiled=True)


def _check_definitions(exports: Mapping[Input, manifests.Manifest], inputs: Iterable[Input]) -> None:
    """Refuse second definitions of an exported function: nvJitLink links one of the two, and may crash."""
    artifacts = {source.code: (source.name, manifest) for source, manifest in exports.items()}
    exported = [
        Symbol(name, function.symbol, function.kind, defined=True)
        for name, manifest in artifacts.values()
        for function in manifest.functions
    ]
    names = {symbol.name for symbol in exported}
    # A Python file may be compiled to the very code of its artifact, which is no second definition.
    compiled = {source.code: source for source in inputs if source.compiled and source.kind == PTX}
    sources = (source for code, source in compiled.items() if code not in artifacts)
    second_definitions = (symbol for source in sources for symbol in symbols(source) if symbol.name in names)
    check_duplicates([*exported, *second_definitions])


def _folder_of(source: Input) -> Path:
    return (source.path or Path(source.name)).parent


class _Assertions(NamedTuple):
    """
    The assertions that NVRTC compiles with a source.

    Args:
        linked_functions: The functions that are linked with the source, which it may declare.
        required_definitions: The functions that Python functions call, which the source may define.
        maybe_in_namespace: The names of those functions that the source may declare in a namespace.
        header_check: CUDA C++ with an `#error` for the header of another export.
        header_errors: The message for each `#error`.
    """

    linked_functions: Sequence[DeclaredFunction]
    required_definitions: Sequence[DeclaredFunction]
    maybe_in_namespace: Collection[str]
    header_check: str
    header_errors: dict[str, str]

    def appended_to(self, source: Input) -> Input:
        """Return *source* with the assertions."""
        text = declarations.assertions(
            (*self.linked_functions, *self.required_definitions), self.maybe_in_namespace
        )
        # The last line of a source may end in a backslash.
        return replace(source, code=source.code + f"\n\n{self.header_check}{text}".encode())


def _assertions_for(
    source: Input,
    options: SourceOptions,
    exports: Mapping[Input, manifests.Manifest],
    linked_functions: Sequence[DeclaredFunction],
    required_definitions: Sequence[DeclaredFunction],
) -> _Assertions | None:
    """Return the assertions for *source*; None if there is nothing to compare it with."""
    if not (exports or linked_functions or required_definitions):
        return None
    included = options.find_includes(source.code, _folder_of(source))
    toolkit = tuple(f"{folder}/" for folder in (*nvrtc.toolkit_include_dirs(), nvrtc.INCLUDE_DIR))
    texts = {name: includes.encode(text) for name, text in options.headers}
    texts |= {path: Path(path).read_bytes() for path in included.files if not path.startswith(toolkit)}
    headers = {path: header for path, text in texts.items() if (header := manifests.parse_header(path, text))}
    # A generated header declares all functions of its export: compare those that other text mentions.
    parts = [source.code, *map(includes.encode, options.arguments())]
    parts += (text for path, text in texts.items() if path not in headers)
    text = b"\n".join(map(includes.join_lines, parts))
    if included.key is not None:
        linked_functions = declarations.mentioned_functions(text, linked_functions)
        required_definitions = declarations.mentioned_functions(text, required_definitions)
    header_check, header_errors = manifests.header_guard_check(exports.values(), [*headers.values()])
    if not (linked_functions or required_definitions or header_errors):
        return None
    has_namespace = b"namespace" in text
    functions = (*linked_functions, *required_definitions)
    maybe_in_namespace = {
        function.name for function in functions if has_namespace and function.name.encode() in text
    }
    return _Assertions(
        linked_functions, required_definitions, maybe_in_namespace, header_check, header_errors
    )


def _definition_in(source: Input, name: str) -> str:
    """Return the definition of a function of CUDA C++ up to its body; its name if it is not found."""
    match = re.search(rf"[^;{{}}#\n]*\b{name}\s*\([^(){{}};]*\)(?=\s*\{{)", source.text)
    return " ".join(match[0].split()) if match else name


def _compile_as_declared(
    source: Input, arch: Arch, output: str, options: SourceOptions, assertions: _Assertions | None
) -> tuple[cache.Entry, str]:
    """
    Compile *source*, and compare its declarations by *assertions*.

    *source* is compiled more than once only if an assertion fails, or if there are name expressions.

    Returns:
        The compiled code, and a warning about declarations that could not be compared.
    """
    if assertions is None:
        return _compile_logged(source, arch, output, options), ""
    asserted, nvrtc_log = assertions.appended_to(source), ""
    without_names = options._replace(name_expressions=())
    try:
        if without_names == options:
            return _compile_logged(asserted, arch, output, options), ""
        # A name expression may contain macros that the assertions undefine: compile assertions without names.
        _compile(asserted, arch, PTX, without_names)
    except LinkError as error:
        for line, message in assertions.header_errors.items():
            if line in error.log:
                raise LinkError(message, inputs=(source.name,), log=error.log) from error
        nvrtc_log = error.log or str(error)
    compiled = _compile_logged(source, arch, output, options)
    if nvrtc_log:
        from numba_ptxlink._formats.ptx import parse

        ptx = _compile(source, arch, PTX, options).code
        nvrtc_log = _check_assertion_log(source, assertions, nvrtc_log, parse(ptx.decode(errors="replace")))
    return compiled, nvrtc_log


def _check_assertion_log(source: Input, assertions: _Assertions, log: str, module: Module) -> str:
    """Refuse the contradictions in the *log* of assertions; return a warning about uncompared functions."""
    # A function of the same name may be unrelated: static, or a C++ function, whose symbol is another name.
    defined = {function.name: function.defined for function in module.functions}
    callees = [function for function in assertions.linked_functions if defined.get(function.name) is False]
    definitions = [function for function in assertions.required_definitions if defined.get(function.name)]
    declarations.raise_contradictions(source.name, declarations.failed_assertions(log, callees))
    for function in declarations.failed_assertions(log, definitions):
        both = f"{function.declaration}  in {function.origin}\n    {_definition_in(source, function.name)}"
        contradiction = replace(function, declaration=both, origin=source.name)
        declarations.raise_contradictions(function.origin, [contradiction])
    reasons = declarations.uncompared_reasons(
        log, (*assertions.linked_functions, *assertions.required_definitions)
    )
    lines = [
        f"    {function.name}  of {function.origin}: {reasons[function.name]}"
        for function in (*callees, *definitions)
        if function.name in reasons
    ]
    return _uncompared_warning(source.name, "\n".join(lines)) if lines else ""


@functools.cache
def _uncompared_warning(name: str, lines: str) -> str:
    """Return the warning about declarations that were not compared; log it once."""
    warning = (
        f"{name} has declarations that could not be compared with the linked functions; include the "
        f"generated header, or declare each function once, in no namespace, and compile it as C++11 or "
        f"later:\n{lines}"
    )
    log.warning("%s", warning)
    return warning


def _compile_logged(source: Input, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    """
    Compile CUDA C++ to *output*; its warnings are logged.

    Raises:
        LinkError: NVRTC rejected the source or an option. The error has the log.
    """
    compiled = _compile(source, arch, output, options)
    if compiled.log:
        log.warning("%s: %s", source.name, compiled.log)
    return compiled


def _compile(source: Input, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    folder = source.path and source.path.parent
    return nvrtc.compile_source(source.code, source.name, arch, options, output=output, folder=folder)
