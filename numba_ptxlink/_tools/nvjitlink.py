"""Link with nvJitLink through cuda.bindings; the only module that calls it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._formats.kinds import CUBIN, KINDS, PTX
from numba_ptxlink._locks import in_tool
from numba_ptxlink.errors import LinkError

from . import build_id, packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numba_ptxlink._arch import Arch

# The first release whose result can be LTO-IR.
_LTOIR_SINCE = (13, 2)
_MISSING = "nvJitLink could not be loaded ({reason}); install it with `{install}`."


@dataclass(frozen=True)
class Product:
    """
    The result of a link.

    Args:
        code: A cubin, or PTX if "-ptx" was among the flags.
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


def accepts(arch: Arch) -> bool:
    """Return whether nvJitLink links for *arch*."""
    binding = _binding()
    try:
        binding.destroy(binding.create(1, [f"-arch={arch.sm}"]))
    except binding.nvJitLinkError:
        return False
    return True


def package() -> str:
    """Return the package that brings this release of nvJitLink."""
    return packages.package("nvidia-nvjitlink", version()[0])


def merges_ltoir() -> bool:
    """Return whether the result of a link can be LTO-IR."""
    return version() >= _LTOIR_SINCE


def identity() -> tuple[str, ...]:
    """Return name, version and build of nvJitLink, which identify it in keys."""
    try:
        return ("nvJitLink", "{}.{}".format(*version()), build_id.of_library("nvJitLink"))
    except Exception as error:
        raise LinkError(_MISSING.format(reason=error, install=packages.install())) from error


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


@in_tool()
def link(inputs: Sequence[tuple[str, str, bytes]], flags: Sequence[str], *, output: str = "") -> Product:
    """
    Link *inputs*, each (kind, name, code), with nvJitLink. Needs no driver; thread-safe.

    Args:
        inputs: The inputs of the link.
        flags: The linker's arguments.
        output: "cubin", "ptx" or "ltoir"; by default "ptx" if *flags* have "-ptx", else "cubin".

    Raises:
        LinkError: nvJitLink refused an input, a flag or the link. Carries its log.
    """
    binding = _binding()
    names = tuple(name for _, name, _ in inputs)

    def fail(error: Exception, log: str, action: str) -> LinkError:
        reason = log or str(error)
        return LinkError(
            f"nvJitLink failed to {action}: {reason.strip()}\n"
            f"Inputs: {', '.join(names) or 'none'}; flags: {' '.join(flags)}.",
            flags=tuple(flags),
            inputs=names,
            log=log,
        )

    try:
        handle = binding.create(len(flags), list(flags))
    except binding.nvJitLinkError as error:
        raise fail(error, "", "accept its flags") from error
    with _destroying(binding, handle):
        for kind, name, code in inputs:
            input_type = getattr(binding.InputType, KINDS[kind].nvjitlink)
            try:
                binding.add_data(handle, input_type, code, len(code), name)
            except binding.nvJitLinkError as error:
                raise fail(error, _error_log(binding, handle), f"read the {kind} {name}") from error
        try:
            binding.complete(handle)
        except binding.nvJitLinkError as error:
            raise fail(error, _error_log(binding, handle), "link") from error
        output = output or (PTX if "-ptx" in flags else CUBIN)
        try:
            linked = bytearray(getattr(binding, f"get_linked_{output}_size")(handle))
            getattr(binding, f"get_linked_{output}")(handle, linked)
        except (AttributeError, RuntimeError) as error:
            raise LinkError(
                f"nvJitLink {'.'.join(map(str, version()))} cannot give {output} ({error}); upgrade "
                f"{package()} and cuda-bindings.",
                flags=tuple(flags),
                inputs=names,
            ) from error
        return Product(bytes(linked), _info_log(binding, handle), _error_log(binding, handle))


@contextlib.contextmanager
def _destroying(binding: Any, handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        binding.destroy(handle)


def _error_log(binding: Any, handle: int) -> str:
    buffer = bytearray(binding.get_error_log_size(handle))
    if buffer:
        binding.get_error_log(handle, buffer)
    return buffer.decode(errors="replace").rstrip("\0")


def _info_log(binding: Any, handle: int) -> str:
    buffer = bytearray(binding.get_info_log_size(handle))
    if buffer:
        binding.get_info_log(handle, buffer)
    return buffer.decode(errors="replace").rstrip("\0")


def _binding() -> Any:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception as error:
        raise LinkError(_MISSING.format(reason=error, install=packages.install())) from error
    return nvjitlink
