"""
Compile C++ to objects by nvcc or a C++ compiler, and CUDA C++ to PTX by nvcc if NVRTC lacks its headers.

No other module calls these compilers.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._arch import dotted
from numba_ptxlink.errors import ExportError, LinkError

from . import find, programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch

log = logging.getLogger(__name__)

_CXX_COMPILERS = ("c++", "g++", "clang++")
# With these flags, the object can be linked into a shared library, too, and exports no symbol from it.
_OBJECT_FLAGS = ("-fPIC", "-fvisibility=hidden")
# Environment variables that add flags to nvcc, or folders to the host compiler (the manuals of nvcc and GCC).
_NVCC_VARIABLES = ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH")
# Two changes of a file within this time can have the same time stamp.
_CLOCK_TICK_SECONDS = 0.1
# Messages of GCC and Clang, such as "fatal error: crt/host_defines.h: No such file or directory".
_MISSING_HEADER = re.compile(r"fatal error: '?([^\s':]+)(?:: No such file|' file not found)")


def compile_object(
    source: str, name: str, files: Mapping[str, bytes], include_dirs: Sequence[Path]
) -> tuple[bytes, str]:
    """
    Return the object file that *source* is compiled to, and the name and release of the compiler.

    The compilers are tried in this order: nvcc of CUDACXX, on PATH or in a wheel; the C++ compiler of CXX or
    PATH.

    Args:
        source: C++17 source text.
        name: The file name of the source, which the object contains.
        files: The contents of the files that the source includes or embeds, by name.
        include_dirs: The directories to search for other headers.

    Raises:
        ExportError: There is no compiler, or none of them compiled *source*. The error has the log.
    """
    logs = []
    with programs.folder(ExportError) as folder:
        for file, content in {**files, name: source.encode()}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        object_path = folder / f"{name}.o"
        include_flags = [flag for path in include_dirs for flag in ("-isystem", str(path))]
        for compiler, is_nvcc in _compilers():
            flags = (f"-Xcompiler={','.join(_OBJECT_FLAGS)}",) if is_nvcc else _OBJECT_FLAGS
            # "./" keeps a name that begins with "-" from being read as an option.
            file_flags = (f"./{name}", "-I.", *include_flags, "-o", f"./{object_path.name}")
            command = [*compiler, "-x", "c++", "-std=c++17", "-O2", *flags, "-c", *file_flags]
            succeeded, _, failure = programs.run(command, folder)
            if succeeded:
                return object_path.read_bytes(), _name_and_release(compiler)
            log.info("%s did not compile %s: %s", compiler[0], name, failure)
            logs.append(f"{shlex.join(command)}\n{failure}")
    if not logs:
        raise ExportError(
            "An object needs nvcc or a C++ compiler, and there is none; install one (such as g++), or set "
            "CUDACXX or CXX to yours, or export a fat binary, PTX, LTO-IR or cubins."
        )
    all_logs = "\n".join(logs)
    raise ExportError(
        f"No compiler could compile the host code of {name}:\n{all_logs}\n{_cure(all_logs)}", log=all_logs
    )


def compile_cuda(source: str, name: str, arch: Arch, include_dirs: Sequence[Path]) -> str:
    """
    Return the PTX of CUDA C++ with headers that NVRTC lacks, compiled by nvcc.

    The result is cached together with the digests of all files that nvcc has read, and compiled again if one
    of these files has changed.

    Args:
        source: CUDA C++17.
        name: The file name of the source in messages.
        arch: The GPU to generate code for.
        include_dirs: The directories to search for headers that are not the toolkit's.

    Raises:
        LinkError: nvcc rejected *source*, or there is none. The error has the log.
    """
    nvcc = next((compiler for compiler, is_nvcc in _compilers() if is_nvcc), None)
    if nvcc is None:
        raise LinkError(f"{name} needs nvcc, and there is none; install it, or name it by CUDACXX.")
    include_flags = [f"-I{path}" for path in include_dirs]
    flags = ["-std=c++17", "-rdc=true", "-w", f"-arch={arch.sm}"]
    key = cache.Key.of(
        "nvcc",
        {
            "package": cache.package_version(),
            "tool": (*nvcc, programs.version_text(*nvcc)),
            "environment": [f"{variable}={os.environ.get(variable, '')}" for variable in _NVCC_VARIABLES],
            "flags": (*flags, *include_flags),
            "source": source.encode(errors="surrogateescape"),
            "name": name,
        },
    )
    entry = cache.default().look_up(key)
    if entry and entry.meta["files"] == _digests(entry.meta["files"]):
        return entry.code.decode()
    log.info("nvcc compiles %s, since it includes headers that NVRTC lacks", name)
    start_time = time.time()
    with programs.folder(LinkError) as folder:
        (folder / name).write_text(source, errors="surrogateescape")
        outputs = ("-MD", "-MF", "code.d", "-o", "code.ptx")
        succeeded, _, failure = programs.run([*nvcc, "-ptx", *flags, *include_flags, name, *outputs], folder)
        if not succeeded:
            raise LinkError(f"{nvcc[0]} could not compile {name}: {failure}", flags=tuple(flags), log=failure)
        ptx = (folder / "code.ptx").read_text()
        # A rule for make, "code.ptx : a.cu /usr/my\ headers/b.h", whose lines are joined by backslashes.
        rule = (folder / "code.d").read_text(errors="surrogateescape").replace("\\\n", " ")
    _, _, prerequisites = rule.partition(":")
    # Blanks in paths are escaped as "\ ". The first file is the source.
    _, *files = (path.replace("\\ ", " ") for path in re.findall(r"(?:\\ |\S)+", prerequisites))
    digests = _digests(files)
    # Cache nothing if a file cannot be read, or may have changed while nvcc ran: the digest would be that of
    # another content than nvcc has read.
    if (
        all(digests.values())
        and max(Path(path).stat().st_ctime for path in files) < start_time - _CLOCK_TICK_SECONDS
    ):
        cache.default().put(key, cache.Entry({"files": digests}, ptx.encode()))
    return ptx


def _digests(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 digest of each file by its path; "" for a file that cannot be read."""
    digests = dict.fromkeys(paths, "")
    for path in digests:
        with contextlib.suppress(OSError, ValueError):
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests


def _cure(compiler_log: str) -> str:
    """Return the last sentence of the message if all compilers failed; *compiler_log* has their logs."""
    missing = _MISSING_HEADER.search(compiler_log)
    if missing is None:
        return "Set CUDACXX (nvcc) or CXX to a compiler that can, or repair this one."
    if missing[1].startswith("crt/"):
        package = find.package_name("nvidia-cuda-crt")
        return (
            f"The headers of the CUDA runtime need {missing[1]}: install {package} with pip, in the same "
            f"release as {find.package_name('nvidia-cuda-runtime')}."
        )
    return f"Pass the folder of {missing[1]} as include_dirs (-I)."


def nvcc_release() -> tuple[int, int] | None:
    """Return the CUDA release of the nvcc that compiles objects; None without one, or if it prints none."""
    releases = (programs.release(*compiler) for compiler, is_nvcc in _compilers() if is_nvcc)
    return next(releases, None)


def missing_libnvvm() -> Path | None:
    """
    Return the path at which nvcc looks for libNVVM if no file is there; None if nvcc has its libNVVM.

    nvcc loads this libNVVM for -dlto. Return None, too, without nvcc, or if its toolkit is unknown.
    """
    nvcc = next((compiler[0] for compiler, is_nvcc in _compilers() if is_nvcc), "")
    toolkit = find.toolkit_of(nvcc) if nvcc else None
    library = toolkit and toolkit / "nvvm" / "lib64" / "libnvvm.so"
    return None if library is None or library.exists() else library


def _compilers() -> Iterator[tuple[Sequence[str], bool]]:
    """Yield the command of each compiler in the order of preference, and whether the compiler is nvcc."""
    if command := _command_in("CUDACXX"):
        # CUDACXX may name another compiler of CUDA C++, such as clang++.
        yield command, Path(command[0]).name.startswith("nvcc")
    for path in find.programs("nvcc"):
        yield (path,), True
    if command := _command_in("CXX"):
        yield command, False
    for program in filter(shutil.which, _CXX_COMPILERS):
        yield (program,), False


def _command_in(variable: str) -> Sequence[str]:
    """Return the command in an environment variable; empty if it is not set, or names no program."""
    command = find.command(variable)
    if command and not shutil.which(command[0]):
        log.warning("%s=%s is not a program and is ignored: correct or unset it", variable, command[0])
        return ()
    return command


def _name_and_release(compiler: Sequence[str]) -> str:
    """Return "nvcc 13.0", or the first line that another compiler prints for --version."""
    release = programs.release(*compiler)
    lines = programs.version_text(*compiler).splitlines()
    return f"nvcc {dotted(release)}" if release else next(iter(lines), compiler[0])
