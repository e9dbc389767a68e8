"""
Compile the CUDA C++ of a link by NVRTC, and compare its declarations with the functions of exports.

The module `declarations` writes assertions about the declared types, which are appended to a source. Before
link-time optimisation, each source is also compiled to PTX, whose prototypes are compared with those of the
other inputs.
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

# Optimisation takes seconds for some sources. Without it, NVRTC takes hardly longer than its preprocessor.
_UNOPTIMISED = "--Ofast-compile=max"


class PythonCode(NamedTuple):
    """
    Python functions that the exporter has compiled.

    Args:
        input: The code.
        defined: The functions that the code defines.
        called: The functions of other inputs that the code calls, as the code declares them. The origin of
            each is the Python function that calls it.
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
    Compile the CUDA C++ among *sources*, and return the inputs of the link without CUDA C++.

    Args:
        sources: Inputs of any kind.
        python: The Python functions of the link.
        arch: The GPU.
        options: The options for CUDA C++.
        lto: Whether to compile CUDA C++ to LTO-IR, rather than to PTX.
        compares: Whether declarations are compared with manifests, headers and Python functions; with *lto*,
            also with those of the other sources and of PTX.

    Returns:
        The compiled and the other inputs, then *python*; NVRTC's messages; and the symbol of each requested
        name expression.

    Raises:
        LinkError: NVRTC rejected a source, or a declaration contradicts a function that is linked.
    """
    linked_functions: list[DeclaredFunction] = []
    required_definitions: list[DeclaredFunction] = []
    exports: dict[Input, manifests.Manifest] = {}
    if compares:
        required_definitions = [function for code in python for function in code.called]
        linked_functions = [function for code in python for function in code.defined]
        exports = {source: manifest for source in sources if (manifest := manifests.find(source))}
        for manifest in exports.values():
            linked_functions += declarations.declarations_of(manifest)
        for extern in required_definitions:
            declarations.check_declared_types(extern.origin, {extern.name: extern.types}, linked_functions)
    inputs: list[Input] = []
    logs: list[str] = []
    lowered_names: dict[str, str] = {}
    kind = LTOIR if lto else PTX
    sources = _without_duplicates(sources, options)
    # Child processes compile to PTX while the loop below compiles to LTO-IR.
    ptx_results = _start_ptx_compilations(sources, arch, options) if lto and compares else []
    for source in sources:
        if source.kind != CU:
            inputs.append(source)
            continue
        assertions = _assertions_for(source, options, exports, linked_functions, required_definitions)
        compiled, nvrtc_log = _compile_as_declared(source, arch, kind, options, assertions)
        logs += [compiled.log, nvrtc_log]
        lowered_names |= compiled.meta["lowered_names"]
        inputs.append(Input(kind, source.name, compiled.code, compiled=True))
    if ptx_results:
        # Equal PTX is compared once: it is no second definition.
        ptx_inputs = {source.code: source for source in (result.result() for result in ptx_results)}
        check_ptx([*ptx_inputs.values()], may_repeat_kernels=True)
    inputs += (code.input for code in python)
    if exports:
        _check_definitions(exports, inputs)
    return tuple(inputs), "\n".join(filter(None, logs)), lowered_names


def _without_duplicates(sources: Sequence[Input], options: SourceOptions) -> list[Input]:
    """Return *sources* with equal CUDA C++ only once: nvJitLink would find two definitions in its LTO-IR."""
    codes = [source.code for source in sources]
    unique, contents = [], set()
    for source in sources:
        if source.kind == CU and codes.count(source.code) > 1:
            # Equal text in two folders may include different files: compare the text with its includes. The
            # content is None if an included file is not known; such a source stays.
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
    Start to compile the CUDA C++ among *sources* to PTX, in order to compare its prototypes.

    nvJitLink does not compare prototypes in LTO-IR, and this package does not read LTO-IR. So NVRTC compiles
    each source once more, in child processes, since within a process it compiles one source at a time.

    Returns:
        The compiled CUDA C++ and the PTX among *sources*; none if there is only one such input, or only PTX.
    """
    inputs = [source for source in sources if source.kind in (CU, PTX)]
    if len(inputs) < 2 or all(source.kind == PTX for source in inputs):
        return []
    # Deferred: most links compile one source.
    from concurrent.futures import ThreadPoolExecutor

    # The threads wait for child processes: `nvrtc` starts one for each compilation with `_UNOPTIMISED`.
    threads = ThreadPoolExecutor()
    results = [threads.submit(_compile_to_ptx, source, arch, options) for source in inputs]
    threads.shutdown(wait=False)
    return results


def _compile_to_ptx(source: Input, arch: Arch, options: SourceOptions) -> Input:
    """Return *source* as PTX, without optimisation if possible: only its symbols are read."""
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
    # A Python file may be compiled to the same code as its artifact: that is no second definition.
    compiled = {source.code: source for source in inputs if source.compiled and source.kind == PTX}
    sources = (source for code, source in compiled.items() if code not in artifacts)
    second_definitions = (symbol for source in sources for symbol in symbols(source) if symbol.name in names)
    check_duplicates([*exported, *second_definitions])


def _folder_of(source: Input) -> Path:
    """Return the folder of a source; for a source without a path, the folder in its name."""
    return (source.path or Path(source.name)).parent


class _Assertions(NamedTuple):
    """
    The assertions that NVRTC compiles with a source.

    Args:
        linked_functions: The functions that are linked with the source, which it may declare.
        required_definitions: The functions that Python functions call, which the source may define.
        names_maybe_in_namespace: Among the names of all these functions, those that the source may declare in
            a namespace.
        header_check: CUDA C++ with an `#error` for each header with the name of a linked artifact's header,
            but of another export; "" if there is none.
        header_errors: The message for the text of each `#error`.
    """

    linked_functions: Sequence[DeclaredFunction]
    required_definitions: Sequence[DeclaredFunction]
    names_maybe_in_namespace: Collection[str]
    header_check: str
    header_errors: dict[str, str]

    def append_to(self, source: Input) -> Input:
        """Return *source* with the assertions at its end."""
        text = declarations.assertions(
            (*self.linked_functions, *self.required_definitions), self.names_maybe_in_namespace
        )
        # The last line of a source may end in a backslash, which joins it with the next line.
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
    found_includes = options.find_includes(source.code, _folder_of(source))
    # The headers of the toolkit and of this package declare no function of an export.
    excluded_folders = tuple(f"{folder}/" for folder in (*nvrtc.toolkit_include_dirs(), nvrtc.INCLUDE_DIR))
    header_texts = {name: includes.encode(text) for name, text in options.headers}
    header_texts |= {
        path: Path(path).read_bytes()
        for path in found_includes.files
        if not path.startswith(excluded_folders)
    }
    generated_headers = {
        path: header for path, text in header_texts.items() if (header := manifests.parse_header(path, text))
    }
    # A generated header declares all functions of its export. Only the functions that the source, the options
    # or the other headers mention are compared.
    texts = [source.code, *map(includes.encode, options.arguments())]
    texts += (text for path, text in header_texts.items() if path not in generated_headers)
    searched_text = b"\n".join(map(includes.join_lines, texts))
    # Without a key, the source may include files that are not known here, and all functions are compared.
    if found_includes.key is not None:
        linked_functions = declarations.mentioned_functions(searched_text, linked_functions)
        required_definitions = declarations.mentioned_functions(searched_text, required_definitions)
    header_check, header_errors = manifests.header_guard_check(
        exports.values(), [*generated_headers.values()]
    )
    if not (linked_functions or required_definitions or header_errors):
        return None
    names_maybe_in_namespace = set()
    if b"namespace" in searched_text:
        functions = (*linked_functions, *required_definitions)
        names_maybe_in_namespace = {
            function.name for function in functions if function.name.encode() in searched_text
        }
    return _Assertions(
        linked_functions, required_definitions, names_maybe_in_namespace, header_check, header_errors
    )


def _definition_in(source: Input, name: str) -> str:
    """Return the heading of a definition in CUDA C++, such as "int f(float x)"; *name* if it is not found."""
    match = re.search(rf"[^;{{}}#\n]*\b{name}\s*\([^(){{}};]*\)(?=\s*\{{)", source.text)
    return " ".join(match[0].split()) if match else name


def _compile_as_declared(
    source: Input, arch: Arch, output: str, options: SourceOptions, assertions: _Assertions | None
) -> tuple[cache.Entry, str]:
    """
    Compile *source*, and compare its declarations by *assertions*.

    *source* is compiled more than once only if an assertion fails, or if there are name expressions.

    Returns:
        The compiled code, and a warning about declarations that could not be compared; "" if all were.
    """
    if assertions is None:
        return _compile_logged(source, arch, output, options), ""
    source_with_assertions = assertions.append_to(source)
    assertion_log = ""
    without_names = options._replace(name_expressions=())
    try:
        if without_names == options:
            return _compile_logged(source_with_assertions, arch, output, options), ""
        # A name expression may contain macros that the assertions undefine: compile the assertions without
        # name expressions.
        _compile(source_with_assertions, arch, PTX, without_names)
    except LinkError as error:
        for error_text, message in assertions.header_errors.items():
            if error_text in error.log:
                raise LinkError(message, inputs=(source.name,), log=error.log) from error
        assertion_log = error.log or str(error)
    # If the source has errors of its own, they are raised here.
    compiled = _compile_logged(source, arch, output, options)
    if not assertion_log:
        return compiled, ""
    from numba_ptxlink._formats.ptx import parse

    module = parse(_compile(source, arch, PTX, options).code.decode(errors="replace"))
    return compiled, _check_assertion_log(source, assertions, assertion_log, module)


def _check_assertion_log(source: Input, assertions: _Assertions, assertion_log: str, module: Module) -> str:
    """
    Refuse failed assertions; return a warning about assertions that were not evaluated, or "".

    Args:
        source: The source, without assertions.
        assertions: The assertions.
        assertion_log: NVRTC's log of the source with the assertions.
        module: The PTX of the source without assertions.
    """
    # The source may have an unrelated function with the same name: a static one, or a C++ function, whose
    # symbol is mangled. The PTX shows which symbols the source declares or defines.
    defined = {function.name: function.defined for function in module.functions}
    callees = [function for function in assertions.linked_functions if defined.get(function.name) is False]
    definitions = [function for function in assertions.required_definitions if defined.get(function.name)]
    declarations.raise_contradictions(source.name, declarations.failed_assertions(assertion_log, callees))
    for function in declarations.failed_assertions(assertion_log, definitions):
        # Here the Python function declares, and the source defines: the message blames the Python function,
        # and lists its declaration, then the definition in the source.
        definition = _definition_in(source, function.name)
        listing = f"{function.declaration}  in {function.origin}\n    {definition}"
        contradiction = replace(function, declaration=listing, origin=source.name)
        declarations.raise_contradictions(function.origin, [contradiction])
    reasons = declarations.uncompared_reasons(
        assertion_log, (*assertions.linked_functions, *assertions.required_definitions)
    )
    lines = [
        f"    {function.name}  of {function.origin}: {reasons[function.name]}"
        for function in (*callees, *definitions)
        if function.name in reasons
    ]
    return _uncompared_warning(source.name, "\n".join(lines)) if lines else ""


@functools.cache
def _uncompared_warning(name: str, listing: str) -> str:
    """Return the warning about declarations that were not compared; log it at the first call only."""
    warning = (
        f"{name} has declarations that could not be compared with the linked functions; include the "
        f"generated header, or declare each function once, in no namespace, and compile it as C++11 or "
        f"later:\n{listing}"
    )
    log.warning("%s", warning)
    return warning


def _compile_logged(source: Input, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    """
    Compile CUDA C++ to the kind *output*, and log NVRTC's warnings.

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
