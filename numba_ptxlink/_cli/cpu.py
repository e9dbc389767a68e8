"""Implement the command `cpu`, which runs a program whose CUDA device is the CPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from numba_ptxlink._config import CPU_CHECKS
from numba_ptxlink.errors import ConfigError

from . import arguments as parsing

if TYPE_CHECKING:
    import argparse

_EXAMPLES = ("cpu -- pytest", "cpu --arch 9.0 --devices 2 -- python train.py", "cpu -- ./app")


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    cpu = parsing.add_command(
        commands,
        "cpu",
        _cpu,
        "run a program and its child processes with the CPU as its CUDA device",
        _EXAMPLES,
    )
    cpu.add_argument(
        "--arch", type=parsing.parse_text, help="the compute capability of the device (default: 7.5)"
    )
    cpu.add_argument("--devices", type=int, metavar="N", help="the number of devices (default: 1)")
    cpu.add_argument(
        "--check",
        dest="checks",
        action="append",
        choices=(*CPU_CHECKS, "none"),
        help="a check of kernels, named as in compute-sanitizer; repeat for more (memcheck always runs, "
        "except with none)",
    )
    cpu.add_argument(
        "command", nargs="+", type=parsing.parse_text, metavar="COMMAND", help="the program, after --"
    )


def _cpu(arguments: argparse.Namespace) -> NoReturn:
    """Replace this process by the program, so that the command has its exit status and signals."""
    from numba_ptxlink._cpu import device

    names = arguments.checks
    # Without --check, None means the default, memcheck. "none" gives an empty list: no checks.
    checks = None if names is None else [name for name in names if name != "none"]
    settings = device.checked_settings(arguments.arch, arguments.devices, checks)
    environ = device.child_environment(settings, os.environ)
    program, *_ = arguments.command
    try:
        os.execvpe(program, arguments.command, environ)  # noqa: S606 - the user's program
    except FileNotFoundError as error:
        raise ConfigError(f"There is no program {program!r}; give its path after --.") from error
