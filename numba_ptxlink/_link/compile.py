"""
Compile CUDA C++ by NVRTC, and compare what it declares with what exports define.

PTX of CUDA 13 spells `float` and `int` alike, so that a call through a wrong declaration of the same width
links. NVRTC knows the declared types: assertions about them, appended to the source, generate no code.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import LinkError

from . import declarations, manifests
from .check import Symbol, check_duplicates, check_ptx, symbols
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._tools.nvrtc import SourceOptions

    from .declarations import Declared

log = logging.getLogger(__name__)

# It takes a compilation of code that NVVM optimises for seconds down to the time of the preprocessor.
_UNOPTIMISED = "--Ofast-compile=max"


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
) -> tuple[tuple[Input, ...], str, dict[str, str]]:
    """
    Compile the CUDA C++ among *sources*, and join the rest and *python* to it.

    Args:
        sources: Inputs of any kind.
        python: The Python functions of the link.
        arch: The GPU.
        options: How to compile CUDA C++.
        lto: Whether to compile it to LTO-IR, rather than to PTX.
        compares: Whether what sources declare is compared with manifests, headers and Python functions, and
            before link-time optimisation with each other and with PTX.

    Returns:
        The inputs, PTX, LTO-IR and what is opaque; NVRTC's messages; and the symbol of each requested name
        expression.

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
    sources = _without_repeated(sources, options)
    as_ptx = _begin_as_ptx(sources, arch, options) if lto and compares else []
    for source in sources:
        if source.kind != CU:
            inputs.append(source)
            continue
        checks = _checks_of(source, options, exports, known, called)
        compiled, nvrtc_log = _compile_as_declared(source, arch, kind, options, checks)
        logs += [compiled.log, nvrtc_log]
        lowered |= compiled.meta["lowered_names"]
        inputs.append(Input(kind, source.name, compiled.code, compiled=True))
    if as_ptx:
        check_ptx([*{each.code: each for each in (result.result() for result in as_ptx)}.values()])
    inputs += (code.input for code in python)
    if exports:
        _check_definitions(exports, inputs)
    return tuple(inputs), "\n".join(filter(None, logs)), lowered


def _without_repeated(sources: Sequence[Input], options: SourceOptions) -> list[Input]:
    """Return *sources*, CUDA C++ of one content once: nvJitLink would find two definitions in its LTO-IR."""
    codes = [source.code for source in sources]
    unique, contents = [], set()
    for source in sources:
        repeated = source.kind == CU and codes.count(source.code) > 1
        content = options.content_of(source.code, _folder_of(source)) if repeated else None
        if content not in contents:
            unique.append(source)
        contents |= {content} - {None}
    return unique


def _begin_as_ptx(sources: Sequence[Input], arch: Arch, options: SourceOptions) -> list[Future[Input]]:
    """
    Begin to make PTX of all CUDA C++ and PTX among *sources*, to be compared; of none if that is one input.

    nvJitLink links LTO-IR whatever its prototypes are, and LTO-IR is not read here. So NVRTC compiles each
    source once more, in child processes: within one process it compiles one source at a time.
    """
    compared = [source for source in sources if source.kind in (CU, PTX)]
    if len(compared) < 2 or all(source.kind == PTX for source in compared):
        return []
    # Deferred: most links compile one source.
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor()
    results = [threads.submit(_as_ptx, source, arch, options) for source in compared]
    threads.shutdown(wait=False)
    return results


def _as_ptx(source: Input, arch: Arch, options: SourceOptions) -> Input:
    """Return *source* as PTX, whose code is not optimised: only its symbols are read."""
    if source.kind == PTX:
        return source
    try:
        code = _compile(source, arch, PTX, options._replace(flags=(*options.flags, _UNOPTIMISED))).code
    except LinkError:
        # An older NVRTC does not know the option, and some code compiles only when it is optimised.
        code = _compile(source, arch, PTX, options).code
    return Input(PTX, source.name, code, compiled=True)


def _check_definitions(exports: Mapping[Input, manifests.Manifest], inputs: Iterable[Input]) -> None:
    """Refuse what defines an exported function once more: nvJitLink takes one of the two, and may crash."""
    artifacts = {source.code: (source.name, manifest) for source, manifest in exports.items()}
    exported = [
        Symbol(name, function["symbol"], function["kind"], defined=True)
        for name, manifest in artifacts.values()
        for function in manifest.functions
    ]
    names = {symbol.name for symbol in exported}
    # What is the artifact of a file is no second definition.
    compiled = {source.code: source for source in inputs if source.compiled and source.kind == PTX}
    others = (source for code, source in compiled.items() if code not in artifacts)
    made = (symbol for source in others for symbol in symbols(source) if symbol.name in names)
    check_duplicates([*exported, *made])


def _folder_of(source: Input) -> Path:
    return (source.path or Path(source.name)).parent


class _Checks(NamedTuple):
    """
    What is asked of NVRTC about one source.

    Args:
        known: What is linked with it, which it may declare.
        required_definitions: What it may define, for the Python functions that call it.
        named: The names of those that it may declare, where it may do so within a namespace.
        headers: CUDA C++ that does not compile behind the header of another export.
        wrong: What the errors of that mean.
    """

    known: Sequence[Declared]
    required_definitions: Sequence[Declared]
    named: Collection[str]
    headers: str
    wrong: dict[str, str]

    def asserted(self, source: Input) -> Input:
        """Return *source* with the assertions."""
        text = declarations.assertions((*self.known, *self.required_definitions), self.named)
        # The last line of a source may end in a backslash.
        return replace(source, code=source.code + f"\n\n{self.headers}{text}".encode())


def _checks_of(
    source: Input,
    options: SourceOptions,
    exports: Mapping[Input, manifests.Manifest],
    known: Sequence[Declared],
    required_definitions: Sequence[Declared],
) -> _Checks | None:
    """Return what there is to compare *source* with; None where there is nothing."""
    if not (exports or known or required_definitions):
        return None
    included = options.included(source.code, _folder_of(source))
    toolkit = tuple(f"{folder}/" for folder in (*nvrtc.toolkit_include_dirs(), nvrtc.INCLUDE_DIR))
    texts = {name: includes.encoded(text) for name, text in options.headers}
    texts |= {path: Path(path).read_bytes() for path in included.files if not path.startswith(toolkit)}
    made = {path: header for path, text in texts.items() if (header := manifests.generated(path, text))}
    # A header of an export declares all of its functions: those that other text names are compared.
    own = [source.code, *map(includes.encoded, options.arguments())]
    own = [includes.spliced(text) for text in (*own, *(texts[path] for path in texts if path not in made))]
    whole = b"\n".join(own)
    if included.key is not None:
        known, required_definitions = (
            declarations.named_in(whole, each) for each in (known, required_definitions)
        )
    headers, wrong = manifests.refusing(exports.values(), [*made.values()])
    if not (known or required_definitions or wrong):
        return None
    text = whole if b"namespace" in whole else b""
    named = {each.name for each in (*known, *required_definitions) if each.name.encode() in text}
    return _Checks(known, required_definitions, named, headers, wrong)


def _compile_as_declared(
    source: Input, arch: Arch, output: str, options: SourceOptions, checks: _Checks | None
) -> tuple[cache.Entry, str]:
    """
    Compile *source*, and compare its declarations by *checks*.

    Costs further compilations only where the first one fails.

    Returns:
        What it is compiled to, and what could not be compared.
    """
    if checks is None:
        return _compile_warned(source, arch, output, options), ""
    asserted, nvrtc_log = checks.asserted(source), ""
    plain = options._replace(name_expressions=())
    try:
        if plain == options:
            return _compile_warned(asserted, arch, output, options), ""
        # Names of templates may have macros in them, which the assertions undefine.
        _compile(asserted, arch, PTX, plain)
    except LinkError as error:
        for mark, message in checks.wrong.items():
            if mark in error.log:
                raise LinkError(message, inputs=(source.name,), log=error.log) from error
        nvrtc_log = error.log or str(error)
    compiled = _compile_warned(source, arch, output, options)
    if nvrtc_log:
        from numba_ptxlink._formats.ptx import parse

        ptx = _compile(source, arch, PTX, options).code
        nvrtc_log = _check_assertion_log(source, checks, nvrtc_log, parse(ptx.decode(errors="replace")))
    return compiled, nvrtc_log


def _check_assertion_log(source: Input, checks: _Checks, log: str, module: Module) -> str:
    """Refuse what *source* declares otherwise, by the *log* of its assertions; return what stays open."""
    # A function of that name may be another one: static, or one of C++, whose symbol is not the name.
    defined = {function.name: function.defined for function in module.functions}
    used = [each for each in checks.known if defined.get(each.name) is False]
    made = [each for each in checks.required_definitions if defined.get(each.name)]
    declarations.refuse(source.name, declarations.failed_in(log, used))
    for each in declarations.failed_in(log, made):
        declarations.refuse(each.origin, [replace(each, declaration=each.name, origin=source.name)])
    reasons = declarations.uncompared_in(log, (*checks.known, *checks.required_definitions))
    lines = [
        f"    {each.name}  of {each.origin}: {reasons[each.name]}"
        for each in (*used, *made)
        if each.name in reasons
    ]
    return _told(source.name, "\n".join(lines)) if lines else ""


@functools.cache
def _told(name: str, lines: str) -> str:
    """Return what the log of a link says of declarations that are not compared; warn of it once."""
    said = (
        f"{name} has declarations that could not be compared with what is linked; include the generated "
        f"header, or declare each function once, in no namespace, and compile it as C++11 or later:\n{lines}"
    )
    log.warning("%s", said)
    return said


def _compile_warned(source: Input, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    """
    Compile CUDA C++ to *output*; its warnings are logged.

    Raises:
        LinkError: NVRTC refused the source or an option. Carries its log.
    """
    compiled = _compile(source, arch, output, options)
    if compiled.log:
        log.warning("%s: %s", source.name, compiled.log)
    return compiled


def _compile(source: Input, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    folder = source.path and source.path.parent
    return nvrtc.compile_source(source.code, source.name, arch, options, output=output, folder=folder)
