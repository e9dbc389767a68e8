"""Describe the machine and the interpreter."""

from __future__ import annotations

import locale
import os
import platform
import sys
import sysconfig
from pathlib import Path

_CPUS = Path("/proc/cpuinfo")


def describe() -> dict[str, str]:
    """Return the operating system, the Python, the CPU and the locale, each by its name."""
    return {
        "operating system": _operating_system(),
        "Python": _python(),
        "CPU": _cpu(),
        "locale": f"{locale.setlocale(locale.LC_CTYPE)}, {locale.getpreferredencoding(do_setlocale=False)}",
    }


def _operating_system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, kernel {platform.release()}, {' '.join(filter(None, platform.libc_ver()))}"


def _python() -> str:
    free = ", free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{platform.python_version()} ({platform.python_implementation()}{free}), {sys.executable}"


def _cpu() -> str:
    try:
        lines = _CPUS.read_text().splitlines()
    except OSError:
        lines = []
    # 64-bit ARM has no name there.
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(filter(None, names), "")
    return ", ".join(filter(None, (name, platform.machine(), f"{os.cpu_count()} cores")))
