"""Compile CUDA C++ with NVRTC through cuda.bindings; the only module that calls it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.kinds import KINDS, LTOIR, PTX
from numba_ptxlink._locks import in_tool
from numba_ptxlink.errors import LinkError

from . import build_id, include_scan, packages, standard_headers, working_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INCLUDE_DIR = Path(__file__).parents[1] / "include"
"""This package's own headers, which those of exports include."""

_LINES = ("--generate-line-info", "-lineinfo", "--device-debug", "-G")
# Options that read or write files that a key does not cover, or that report the time.
_BEYOND_KEYS = (
    "-I",
    "--include-path",
    "-include",
    "--pre-include",
    "-pch",
    "--pch",
    "--create-pch",
    "--use-pch",
    "-time",
    "--time",
    "--device-time-trace",
    "--fdevice-time-trace",
    "-fdevice-time-trace",
)


@dataclass(frozen=True)
class Compiled:
    """
    The result of compiling a CUDA C++ source.

    Args:
        code: PTX text, LTO-IR or a cubin.
        log: NVRTC's log of warnings and remarks.
        flags: The options passed to NVRTC.
        lowered_names: The symbol of each name expression, in the order of the expressions.
    """

    code: bytes
    log: str
    flags: tuple[str, ...]
    lowered_names: tuple[tuple[str, str], ...] = ()


def version() -> tuple[int, int]:
    """Return NVRTC's version as (major, minor)."""
    binding = _binding()
    status, major, minor = binding.nvrtcVersion()
    if int(status):
        raise packages.missing("NVRTC", "nvidia-cuda-nvrtc", status.name)
    return (int(major), int(minor))


@functools.cache
def supported_archs() -> tuple[Arch, ...]:
    """Return the architectures that NVRTC generates code for, without variants, in ascending order."""
    status, numbers = _binding().nvrtcGetSupportedArchs()
    if int(status):
        raise packages.missing("NVRTC", "nvidia-cuda-nvrtc", status.name)
    return tuple(Arch(*divmod(int(number), 10)) for number in sorted(numbers))


def toolkit_include_dirs() -> tuple[Path, ...]:
    """Return the include directories of the CUDA toolkit and of CCCL installed beside NVRTC."""
    pathfinder = packages.pathfinder()
    include_dirs: list[Path] = []
    for library in ("cudart", "cccl"):
        try:
            header_dir = pathfinder.locate_nvidia_header_directory(library)
        except Exception:  # noqa: BLE001 - older pathfinders raise on names they do not know
            header_dir = None
        if header_dir is not None and Path(header_dir.abs_path) not in include_dirs:
            include_dirs.append(Path(header_dir.abs_path))
    return tuple(include_dirs)


def reaches_further(flags: Sequence[str]) -> bool:
    """Return whether NVRTC by *flags* uses files that `include_scan` does not see, or tells the time."""
    return any(flag.startswith(_BEYOND_KEYS) for flag in flags)


def compile_source(
    source: str | bytes,
    name: str,
    arch: Arch,
    *,
    output: str = PTX,
    flags: Sequence[str] = (),
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
    name_expressions: Sequence[str] = (),
    isolated: bool = False,
    folder: Path | None = None,
) -> Compiled:
    """
    Compile CUDA C++ to relocatable code with NVRTC. Needs no driver; thread-safe.

    What fails for want of a header of the standard library is compiled again with that of CUDA's C++ library.

    Args:
        source: One translation unit.
        name: The name of the source in the log.
        arch: The GPU to generate code for.
        output: "ptx", "ltoir" or "cubin".
        flags: Further NVRTC options.
        include_dirs: Directories that `#include` searches, in order.
        headers: Headers in memory, by the name that `#include` uses.
        name_expressions: Functions, variables and template instances whose mangled names are returned.
        isolated: Whether to keep the working directory and the paths of *include_dirs* out of the code, where
            the system allows it; neither is `#include "..."` searched for in the working directory. *name* is
            a plain file name then, and *folder* None.
        folder: The directory the source was read from, which `#include "..."` searches first and `__FILE__`
            shows; None for source that is no file, where that is the directory in *name*: the working one if
            there is none.

    Raises:
        LinkError: NVRTC refused the source or an option. Carries its log.
    """
    if isinstance(source, str):
        source = source.encode(errors="surrogateescape")
    _refuse_binary(source, name)
    if isolated:
        include_dirs = [Path(path).absolute() for path in include_dirs]
    compiled = functools.partial(
        _compile_source,
        source,
        name,
        arch,
        output=output,
        flags=flags,
        include_dirs=include_dirs,
        name_expressions=tuple(name_expressions),
        isolated=isolated,
        folder=folder,
    )
    texts = dict(headers or {})
    try:
        return compiled(headers=texts)
    except LinkError as error:
        home = Path("/") if isolated else folder or Path(name).parent
        standard = standard_headers.lacking(error.log, source, home, include_dirs, texts)
        if not standard:
            raise
    return compiled(headers={**texts, **standard})


def _compile_source(
    source: bytes,
    name: str,
    arch: Arch,
    *,
    output: str,
    flags: Sequence[str],
    include_dirs: Sequence[Path | str],
    headers: Mapping[str, str],
    name_expressions: tuple[str, ...],
    isolated: bool,
    folder: Path | None,
) -> Compiled:
    binding = _binding()

    def options(paths: Sequence[Path | str]) -> tuple[str, ...]:
        return (
            f"--gpu-architecture={arch.sm if output == 'cubin' else arch.compute}",
            "--relocatable-device-code=true",
            *(("-dlto",) if output == LTOIR else ()),
            *(f"--include-path={path}" for path in paths),
            *flags,
        )

    # NVRTC searches the directory in the program's name. On the include path it would also serve <...>.
    program_name = name if folder is None else str(folder / name)
    if isolated and not working_directory.available():
        program_name = f"/{name}"

    def compile_with(paths: Sequence[Path | str]) -> cache.Entry:
        return _compile(
            binding,
            source,
            name,
            program_name=program_name,
            options=options(paths),
            output=output,
            headers=headers,
            name_expressions=name_expressions,
            shown=dict(zip(map(str, paths), map(str, include_dirs), strict=True)),
        )

    def make() -> cache.Entry:
        if isolated:
            return working_directory.isolated(compile_with, list(map(Path, include_dirs)))
        return compile_with(include_dirs)

    key = _key(
        source,
        program_name,
        options=options(include_dirs),
        output=output,
        include_dirs=include_dirs,
        headers=headers,
        name_expressions=name_expressions,
        isolated=isolated,
    )
    result = make() if key is None else cache.cached(key, make)
    lowered = result.meta.get("lowered_names", {})
    return Compiled(
        result.code,
        result.log,
        options(include_dirs),
        tuple((expression, lowered[expression]) for expression in name_expressions),
    )


def _refuse_binary(source: bytes, name: str) -> None:
    # NVRTC would stop reading there, and succeed.
    at = source.rstrip(b"\0").find(0)
    if at < 0:
        return
    from numba_ptxlink._formats import texts

    if texts.is_utf_16(source):
        raise LinkError(f"{name} is text in UTF-16; save it as UTF-8.", inputs=(name,))
    line = source.count(b"\n", 0, at) + 1
    raise LinkError(
        f"{name} has a NUL character in line {line}; remove it, or give text, not a binary.", inputs=(name,)
    )


def _key(
    source: bytes,
    name: str,
    *,
    options: tuple[str, ...],
    output: str,
    include_dirs: Sequence[Path | str],
    headers: Mapping[str, str],
    name_expressions: tuple[str, ...] = (),
    isolated: bool = False,
) -> cache.Key | None:
    """Return everything the result depends on, None if that cannot be determined."""
    paths = [f"--include-path={path}" for path in include_dirs]
    plain = tuple(option for option in options if option not in paths)
    if reaches_further(plain):
        return None
    folder = Path("/") if isolated else Path(name).parent
    included = include_scan.manifest(source, folder, include_dirs, headers)
    if included is None:
        return None
    # Line information contains the paths of the files.
    lines = any(option in _LINES for option in plain)
    return cache.Key.of(
        "nvrtc",
        {
            "package": cache.package_version(),
            "tool": ("NVRTC", dotted(version()), build_id.of_library("nvrtc")),
            "flags": plain,
            "output": output,
            "source": source,
            "name": name,
            "name expressions": name_expressions,
            "includes": included,
            "isolated": str(isolated and working_directory.available()),
            "paths": [str(folder.absolute()), *map(str, include_dirs)] if lines else (),
        },
    )


@in_tool()
def _compile(
    binding: Any,
    source: bytes,
    name: str,
    *,
    program_name: str,
    options: tuple[str, ...],
    output: str,
    headers: Mapping[str, str],
    name_expressions: tuple[str, ...],
    shown: Mapping[str, str],
) -> cache.Entry:
    def readable(text: str) -> str:
        for path, meant in shown.items():
            text = text.replace(f"{path}/", f"{meant}/")
        return text

    flags = tuple(readable(f"{option}/").removesuffix("/") for option in options)
    texts = list(map(_encoded, headers.values()))
    names = list(map(_encoded, headers))
    status, program = binding.nvrtcCreateProgram(source, _encoded(program_name), len(texts), texts, names)
    if int(status):
        raise LinkError(f"NVRTC could not take {name}: {status.name}.", inputs=(name,))
    try:
        for expression in name_expressions:
            binding.nvrtcAddNameExpression(program, expression.encode())
        (status,) = binding.nvrtcCompileProgram(program, len(options), list(map(_encoded, options)))
        log = readable(_fetch(binding, program, "ProgramLog").decode(errors="replace").rstrip("\0"))
        if int(status):
            cure = standard_headers.cure(log)
            raise LinkError(
                f"NVRTC could not compile {name}: {status.name}\n{log.strip()}\nFlags: {' '.join(flags)}."
                f"{cure and f' {cure}'}",
                flags=flags,
                inputs=(name,),
                log=log,
            )
        getter = KINDS[output].nvjitlink
        code = _fetch(binding, program, getter)
        lowered = {text: _lowered(binding, program, text, name) for text in name_expressions}
        meta = {"log": log.strip(), "lowered_names": lowered}
        return cache.Entry(meta, code.rstrip(b"\0") if output == PTX else code)
    finally:
        binding.nvrtcDestroyProgram(program)


def _encoded(text: str) -> bytes:
    """Return *text*, in which paths may be, as the bytes that the system has for them."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # not a path of this system: its encoding has no such characters
        return text.encode("utf-8", "surrogateescape")


def _lowered(binding: Any, program: Any, expression: str, name: str) -> str:
    status, symbol = binding.nvrtcGetLoweredName(program, expression.encode())
    if int(status):
        raise LinkError(
            f"{name} has no symbol for the name expression {expression!r} ({status.name}); "
            'write it as C++ would in that file, such as "ns::kernel<float>".',
            inputs=(name,),
        )
    return str(symbol.decode())


def _fetch(binding: Any, program: Any, what: str) -> bytes:
    _, size = getattr(binding, f"nvrtcGet{what}Size")(program)
    buffer = b"\0" * size
    getattr(binding, f"nvrtcGet{what}")(program, buffer)
    return bytes(buffer)


def _binding() -> Any:
    try:
        packages.check("nvrtc")
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:
        raise packages.missing("NVRTC", "nvidia-cuda-nvrtc", error) from error
    return nvrtc
