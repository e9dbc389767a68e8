"""
Link with nvJitLink: its arguments and errors. `find` loads it, and `isolated` calls it.

The parameter *path* is the file of an nvJitLink in another package, such as pynvjitlink; "" means the
nvJitLink of this environment's toolkit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.kinds import CUBIN, KINDS, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import find, isolated, nvrtc

if TYPE_CHECKING:
    from collections.abc import Sequence

# The first release whose result can be LTO-IR: 13.2 and 13.3 have the function, but it fails.
_LTOIR_SINCE = (13, 4)
# The last major version that aborts the process for an unsupported architecture.
_LAST_MAJOR_THAT_ABORTS = 12
# Flags that, in a link with -lto, change the results of later such links in the process: "-g", "-O0", and
# "-Xnvvm=...", which may contain "-opt=0".
_ALTERING_FLAGS = re.compile("-g$|-O0$|-Xnvvm")
# The end of the name of the function that returns a kind of code, such as nvJitLinkGetLinkedCubin.
_OUTPUTS = {CUBIN: "Cubin", PTX: "Ptx", LTOIR: "LTOIR"}
# The statuses for a flag or an architecture that nvJitLink does not support, by parts of their names, such as
# NVJITLINK_ERROR_UNRECOGNIZED_OPTION.
_UNSUPPORTED_STATUS = re.compile("UNRECOGNIZED_|UNSUPPORTED_ARCH")


class Product(NamedTuple):
    """
    The result of a link.

    Args:
        code: A cubin, or the requested output.
        info_log: The linker's info log.
        error_log: The linker's error log: errors that did not stop the link.
    """

    code: bytes
    info_log: str
    error_log: str


def library() -> str:
    """Return the file of this environment's nvJitLink; raises as `find.library` does."""
    return find.library("nvJitLink")


def version(path: str = "") -> tuple[int, int]:
    """Return nvJitLink's version as (major, minor)."""
    return find.version("nvJitLink", "nvJitLinkVersion", path)


def check_arch(release: tuple[int, int], inputs: tuple[str, ...], flags: Sequence[str]) -> None:
    """
    Refuse an architecture for which the nvJitLink of CUDA 12 would abort the process.

    A newer nvJitLink reports an error itself. nvJitLink has no list of its architectures, but NVRTC of the
    same release supports the same ones. Without an NVRTC of that release, any architecture is accepted.

    Args:
        release: The release of nvJitLink.
        inputs: The names of the inputs, for the message.
        flags: The linker's arguments; the first one is the architecture, such as "-arch=sm_90".

    Raises:
        LinkError: nvJitLink does not support the architecture.
    """
    arch = Arch.of(flags[0].partition("=")[2])
    known = nvrtc.archs_of(release) if release[0] <= _LAST_MAJOR_THAT_ABORTS else ()
    # The list has no variants: sm_90a is supported if sm_90 is.
    if known and Arch(*arch.cc) not in known:
        raise LinkError(
            f"nvJitLink {dotted(release)} does not support {arch.sm}; link for one of "
            f"{', '.join(supported.sm for supported in known)}, or with another toolkit.\n"
            f"Inputs: {', '.join(inputs) or 'none'}; flags: {' '.join(flags)}.",
            flags=tuple(flags),
            inputs=inputs,
        )


def package() -> str:
    """Return the package that contains this release of nvJitLink."""
    return find.package_name("nvidia-nvjitlink", version()[0])


def merges_ltoir() -> bool:
    """Return whether the result of a link can be LTO-IR."""
    return version() >= _LTOIR_SINCE


def key(
    inputs: Sequence[tuple[str, str, bytes]],
    flags: Sequence[str],
    output: str = "",
    *,
    path: str = "",
    unchecked: bool = False,
) -> cache.Key:
    """
    Return the cache key of a result of `link`.

    Args:
        inputs: The inputs of the link, each (kind, name, code).
        flags: The linker's arguments.
        output: As for `link`: "" for the output that the flags imply.
        path: The file of nvJitLink, as in the module's docstring.
        unchecked: Whether the caller skipped the comparison of the inputs with each other. Such a caller
            accepts a result beside which nvJitLink logged errors, and other callers must not find it.
    """
    # The result contains the names of inputs only in debug information.
    contains_names = any(flag in ("-g", "-lineinfo") for flag in flags)
    return cache.Key.of(
        "link",
        {
            "package": cache.package_version(),
            "tool": ("nvJitLink", find.build_id(path or library())),
            "flags": tuple(flags),
            "output": output,
            "names": [name for _, name, _ in inputs] if contains_names else (),
            "unchecked": str(unchecked),
            **{f"input {i} {kind}": code for i, (kind, _, code) in enumerate(inputs, start=1)},
        },
    )


def link(
    inputs: Sequence[tuple[str, str, bytes]], flags: Sequence[str], *, output: str = "", path: str = ""
) -> Product:
    """
    Link *inputs* with nvJitLink. Needs no driver; thread-safe.

    Args:
        inputs: The inputs of the link, each (kind, name, code).
        flags: The linker's arguments, the architecture first.
        output: "cubin", "ptx" or "ltoir"; by default "ptx" if *flags* have "-ptx", else "cubin".
        path: The file of nvJitLink, as in the module's docstring.

    Raises:
        LinkError: nvJitLink rejected an input, a flag or the link. The error has the log.
    """
    names = tuple(name for _, name, _ in inputs)
    check_arch(version(path), names, flags)
    is_lto_link = "-lto" in flags or "-dlto" in flags
    alters_later_calls = is_lto_link and any(map(_ALTERING_FLAGS.match, flags))
    step, status, outputs = isolated.call(
        "nvjitlink",
        path or library(),
        flags,
        [(_escape_surrogates(name), code, KINDS[kind].nvjitlink) for kind, name, code in inputs],
        _OUTPUTS[output or (PTX if "-ptx" in flags else CUBIN)],
        in_child=alters_later_calls,
    )
    if step:
        error, error_log = _status_error(status), outputs["log"]
        message = (
            f"nvJitLink failed to {step}: {error_log.strip() or error}\n"
            f"Inputs: {', '.join(names) or 'none'}; flags: {' '.join(flags)}."
        )
        if _UNSUPPORTED_STATUS.search(str(error)):
            message += (
                "\nnvJitLink does not support one of the flags; correct arch or extra_flags, or use another "
                "toolkit."
            )
        # nvJitLink writes no log if it rejects a flag: then the name of the status stands for the log.
        raise LinkError(
            message,
            flags=tuple(flags),
            inputs=names,
            log=error_log or (str(error) if step == "accept its flags" else ""),
        ) from error
    return Product(outputs["code"], outputs["info"], outputs["log"])


def _status_error(status: int) -> Exception:
    """Return an error that names *status*; without NVIDIA's bindings, which know the names, its number."""
    try:
        from cuda.bindings.nvjitlink import nvJitLinkError
    except ImportError:
        return RuntimeError(f"status {status} of nvJitLink")
    error: Exception = nvJitLinkError(status)
    return error


def _escape_surrogates(name: str) -> str:
    """Return *name* with surrogates, which stand for bytes that are not UTF-8, escaped."""
    return name.encode(errors="backslashreplace").decode()
