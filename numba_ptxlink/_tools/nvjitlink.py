"""Link with nvJitLink through cuda.bindings; the only module that calls it."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.kinds import CUBIN, KINDS, PTX
from numba_ptxlink.errors import LinkError

from . import find, nvrtc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# The first release whose result can be LTO-IR: those of 13.2 and 13.3 have the function, which fails.
_LTOIR_SINCE = (13, 4)
# The last major version that stops the process for an architecture that it does not know.
_ENDS = 12
_UNKNOWN = re.compile("UNRECOGNIZED_|UNSUPPORTED_ARCH")


class Product(NamedTuple):
    """
    The result of a link.

    Args:
        code: A cubin, or what was asked for.
        info_log: The linker's info log.
        error_log: The linker's error log: messages that did not fail the link.
    """

    code: bytes
    info_log: str
    error_log: str


def version() -> tuple[int, int]:
    """Return nvJitLink's version as (major, minor)."""
    major, minor = _binding().version()
    return (int(major), int(minor))


def check_arch(release: tuple[int, int], inputs: tuple[str, ...], flags: Sequence[str]) -> None:
    """
    Refuse an architecture that nvJitLink *release* does not know, which stops the process in CUDA 12.

    It has no list, and is not asked by trying; NVRTC of its release has the same one.

    Raises:
        LinkError: The first of *flags* is such an architecture.
    """
    arch = Arch.of(flags[0].partition("=")[2])
    known = _archs_of(release)
    if known and Arch(*arch.cc) not in known:
        raise LinkError(
            f"nvJitLink failed to accept its flags: {dotted(release)} does not know {arch.sm}; link for one "
            f"of {', '.join(each.sm for each in known)}, or with a toolkit that knows it.\n"
            f"Inputs: {', '.join(inputs) or 'none'}; flags: {' '.join(flags)}.",
            flags=tuple(flags),
            inputs=inputs,
        )


def _archs_of(release: tuple[int, int]) -> tuple[Arch, ...]:
    """Return the architectures of *release*; none where nothing tells, or nvJitLink itself refuses others."""
    if release[0] > _ENDS:
        return ()
    try:
        return nvrtc.supported_archs() if nvrtc.version() == release else ()
    except LinkError:
        return ()


def package() -> str:
    """Return the package that brings this release of nvJitLink."""
    return find.package("nvidia-nvjitlink", version()[0])


def merges_ltoir() -> bool:
    """Return whether the result of a link can be LTO-IR."""
    return version() >= _LTOIR_SINCE


def identity() -> tuple[str, ...]:
    """Return name, version and build of nvJitLink, which identify it in keys."""
    return ("nvJitLink", dotted(version()), find.build_of("nvJitLink"))


def key(
    inputs: Sequence[tuple[str, str, bytes]],
    flags: Sequence[str],
    output: str = "",
    *,
    tool: tuple[str, ...] | None = None,
    unread: tuple[str, ...] = (),
) -> cache.Key:
    """
    Return everything that the result of `link` depends on.

    Args:
        inputs: The inputs of the link.
        flags: The linker's arguments.
        output: As for `link`.
        tool: The identity of another binding, None for this one's.
        unread: The inputs that were not checked against the others before.
    """
    # Only debug information can contain the names of inputs.
    named = any(flag in ("-g", "-lineinfo") for flag in flags)
    return cache.Key.of(
        "link",
        {
            "package": cache.package_version(),
            "tool": identity() if tool is None else tool,
            "flags": tuple(flags),
            "output": output,
            "names": [name for _, name, _ in inputs] if named else (),
            **({"unread": unread} if unread else {}),
            **{f"input {i} {kind}": code for i, (kind, _, code) in enumerate(inputs, start=1)},
        },
    )


def link(inputs: Sequence[tuple[str, str, bytes]], flags: Sequence[str], *, output: str = "") -> Product:
    """
    Link *inputs*, each (kind, name, code), with nvJitLink. Needs no driver; thread-safe.

    Args:
        inputs: The inputs of the link.
        flags: The linker's arguments, the architecture first.
        output: "cubin", "ptx" or "ltoir"; by default "ptx" if *flags* have "-ptx", else "cubin".

    Raises:
        LinkError: nvJitLink refused an input, a flag or the link. Carries its log.
    """
    binding = _binding()
    names = tuple(name for _, name, _ in inputs)
    shown = [encodable(name).encode() for name in names]
    check_arch(version(), names, flags)
    failing = functools.partial(explaining, names=names, flags=flags, errors=binding.nvJitLinkError)
    with failing("accept its flags", str):
        handle = binding.create(len(flags), list(flags))
    try:
        errors = functools.partial(_log, binding, handle, "error")
        for (kind, name, code), encoded in zip(inputs, shown, strict=True):
            with failing(f"read the {kind} {name}", errors):
                _add_data(binding, handle, getattr(binding.InputType, KINDS[kind].nvjitlink), code, encoded)
        with failing("link", errors):
            binding.complete(handle)
        output = output or (PTX if "-ptx" in flags else CUBIN)
        with failing(f"give {output}", errors):
            linked = bytearray(getattr(binding, f"get_linked_{output}_size")(handle))
            getattr(binding, f"get_linked_{output}")(handle, linked)
        return Product(bytes(linked), _log(binding, handle, "info"), errors())
    finally:
        binding.destroy(handle)


@contextlib.contextmanager
def explaining(
    action: str,
    log: Callable[[], str],
    *,
    names: tuple[str, ...],
    flags: Sequence[str],
    errors: type[Exception] | tuple[type[Exception], ...],
) -> Iterator[None]:
    """
    Tell in a `with` block that calls nvJitLink what failed.

    Args:
        action: What is done.
        log: Returns the linker's error log.
        names: The names of the inputs.
        flags: The linker's arguments.
        errors: What the binding raises.

    Raises:
        LinkError: The block raised one of *errors*. Carries the log.
    """
    try:
        yield
    except errors as error:
        text = log()
        cure = "\nIt does not know one of them; correct arch or extra_flags, or take a toolkit that knows it."
        raise LinkError(
            f"nvJitLink failed to {action}: {(text or str(error)).strip()}\n"
            f"Inputs: {', '.join(names) or 'none'}; flags: {' '.join(flags)}."
            f"{cure if _UNKNOWN.search(str(error)) else ''}",
            flags=tuple(flags),
            inputs=names,
            log=text,
        ) from error


def encodable(name: str) -> str:
    """Return *name* as the bindings take it, which encode it: what of a path is no text is escaped."""
    return name.encode(errors="backslashreplace").decode()


def _add_data(binding: Any, handle: int, input_type: int, code: bytes, name: bytes) -> None:
    """Add an input; *name* has to live as long as *handle*, because nvJitLink keeps its address alone."""
    function = _library_function()
    if function is None:
        binding.add_data(handle, input_type, code, len(code), name.decode())
    elif status := function(handle, input_type, code, len(code), name):
        raise binding.nvJitLinkError(status)


@functools.cache
def _library_function() -> Callable[..., int] | None:
    """
    Return nvJitLinkAddData; None where the bindings do not tell its address.

    Their own function passes a copy of the name and frees it, so that errors name another input, or garbage.
    """
    import ctypes

    try:
        from cuda.bindings._internal import nvjitlink

        address = nvjitlink._inspect_function_pointer("__nvJitLinkAddData")  # noqa: SLF001 - no public way
    except (ImportError, AttributeError, KeyError):
        return None
    take = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p
    )
    return take(address) if address else None


def _log(binding: Any, handle: int, kind: str) -> str:
    """Return the "info" or the "error" log."""
    buffer = bytearray(getattr(binding, f"get_{kind}_log_size")(handle))
    if buffer:
        getattr(binding, f"get_{kind}_log")(handle, buffer)
    return buffer.decode(errors="replace").rstrip("\0")


def _binding() -> Any:
    return find.binding("nvJitLink")
