"""The nvPTXCompiler library, linked statically into a cffi extension module, and what loading that needs."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from numba_ptxlink._version import __version__

from .modules import find_module

EXTENSION = f"{__name__}._nvptxcompiler"
"""The extension module."""

_CFFI = "_cffi_backend"
# The System V gABI's "ELF Header" and "Sections", and the LSB's "Symbol Versioning".
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_VERSIONS_NEEDED = 0x6FFFFFFE
_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)")
_AGAIN = (
    "install the wheel or sdist that it came from again: "
    "python -m pip install --force-reinstall --no-deps FILE"
)


def location() -> str | None:
    """Return the path of the extension module, None where it is missing. Loads nothing."""
    spec = find_module(EXTENSION)
    return None if spec is None else spec.origin


def hindrance() -> str | None:
    """
    Return why the extension module cannot be loaded, with the cure; None where nothing of that is seen.

    Loads nothing: the 120,000 addresses that the loader corrects take longer than all that is looked at here.
    """
    folder = Path(__file__).parent
    archive = next((path for path in folder.parents if path.is_file()), None)
    if archive is not None:
        return (
            f"numba-ptxlink is in {archive}, and Python loads no compiled modules out of an archive; install "
            "it with pip beside that, or unpack the archive"
        )
    try:
        cffi = find_module(_CFFI)
    except ImportError:
        cffi = None  # Another finder refuses it.
    if cffi is None:
        return "numba-ptxlink needs cffi, which is not installed; install it: python -m pip install cffi"
    path = location()
    if path is None:
        return refusal(f"{EXTENSION} is missing")
    try:
        needed = glibc_needed(path)
    except (OSError, ValueError) as error:
        return refusal(f"{path}: {error}")
    there = glibc()
    if there is not None and needed > there:
        versions = f"needs glibc {_dotted(needed)}, and this machine has {_dotted(there)}"
        return (
            f"{_cannot(f'{path} {versions}')}; build it from the sdist on this machine, or on one "
            "with a glibc as old: python -m pip install "
            f"--force-reinstall --no-deps numba_ptxlink-{__version__}.tar.gz"
        )
    return None


def refusal(reason: object) -> str:
    """Return that the extension module cannot be loaded for *reason*, with the cure."""
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return (
            f"{_cannot(reason)}; {checkout} is the source tree, build it: python -m pip install -e {checkout}"
        )
    return f"{_cannot(reason)}; {_AGAIN}"


def glibc() -> tuple[int, int] | None:
    """Return the version of the C library, None where it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) if name == "glibc" else None
    except (ValueError, OSError):
        return None


def _cannot(reason: object) -> str:
    return f"numba-ptxlink's compiled part cannot be loaded ({reason})"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def glibc_needed(path: str) -> tuple[int, int]:
    """
    Return the newest glibc whose symbols the library *path* asks for, (0, 0) where it asks for none.

    Raises:
        ValueError: It is no library, or incomplete.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - the path is a str
        size = os.fstat(file.fileno()).st_size
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size or not start.startswith(b"\x7fELF\2\1"):
            raise ValueError("it is no shared library")
        header = _HEADER.unpack(start)
        at, each, count = header[6], header[11], header[12]
        if not count:
            return (0, 0)
        if each != _SECTION.size or at + each * count > size:
            raise ValueError("it is incomplete")
        file.seek(at)
        sections = list(_SECTION.iter_unpack(file.read(each * count)))
        needed = []
        for section in sections:
            if section[1] == _VERSIONS_NEEDED and section[6] < count:
                names = sections[section[6]]
                file.seek(names[4])
                needed += _GLIBC.findall(file.read(names[5]))
    return max(((int(major), int(minor)) for major, minor in needed), default=(0, 0))
