"""The commands of `numba-ptxlink cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import arguments as args
from . import report
from .output import Report

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the command `cache` with its own commands."""
    parser = commands.add_parser("cache", help="what is cached and where, and its deletion")
    parser.set_defaults(parser=parser)
    its = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    args.add_command(its, "stats", _stats, "statistics of each directory")
    args.add_command(its, "clear", _clear, "delete every entry")
    args.add_command(its, "path", _path, "the directory that is written")


def _stats(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    default, lines, content = cache.default(), [], []
    for stats in maintenance.stats(default):
        use = "written" if stats.writable else "read"
        sizes = f"{report.size(stats.size)} of {report.size(stats.cap)}"
        lines.append(f"{stats.path}  ({use})\n  {stats.entries} entries, {sizes}")
        content.append({**vars(stats), "path": str(stats.path)})
    unused = default.tiers().refused if default.settings.cache else (maintenance.OFF,)
    lines += [f"not used: {reason}" for reason in unused]
    brief = "\n".join(f"{each['path']}  {each['entries']} entries, {each['size']} bytes" for each in content)
    return Report({"directories": content, "not used": list(unused)}, "\n".join(lines), brief)


def _clear(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    default = cache.default()
    path, count = maintenance.path(default), maintenance.clear(default)
    return Report({"deleted": count, "path": str(path)}, f"{count} entries deleted from {path}")


def _path(_: argparse.Namespace) -> Report:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    path = str(maintenance.path(cache.default()))
    return Report({"path": path}, path, path)
