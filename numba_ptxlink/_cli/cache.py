"""Implement the commands of `cache`: `stats`, `clear` and `path`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import arguments as parsing
from . import report
from .output import Report

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the command `cache` with its own commands."""
    parser = commands.add_parser("cache", help="show or clear the cache")
    subcommands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    parsing.add_command(subcommands, "stats", _stats, "show the entries and size of each directory")
    parsing.add_command(
        subcommands, "clear", _clear, "delete every entry of the directory that new entries are written to"
    )
    parsing.add_command(subcommands, "path", _path, "print the directory that new entries are written to")


def _stats(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache

    default = cache.default()
    tiers = default.tiers()
    lines, content = [], []
    for directory in tiers.directories:
        sizes = directory.sizes()
        is_written = directory is tiers.writable
        content.append(
            {
                "path": str(directory.path),
                "writable": is_written,
                "entries": len(sizes),
                "size": sum(sizes),
                "cap": directory.max_size,
            }
        )
        size, max_size = report.format_size(sum(sizes)), report.format_size(directory.max_size)
        lines.append(
            f"{directory.path}  ({'written' if is_written else 'read'})\n"
            f"  {len(sizes)} entries, {size} of {max_size}"
        )
    reasons = default.unused_reasons()
    # Each reason begins with the path of a directory, or says that the whole cache is off.
    lines += [f"not used: {reason}" for reason in reasons]
    text = "\n".join(lines)
    return Report({"directories": content, "not used": list(reasons)}, text, brief=text)


def _clear(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache

    directory = cache.default().writable_directory()
    count = directory.clear()
    return Report(
        {"deleted": count, "path": str(directory.path)}, f"{count} entries deleted from {directory.path}"
    )


def _path(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache

    path = str(cache.default().writable_directory().path)
    return Report({"path": path}, path, brief=path)
