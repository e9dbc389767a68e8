"""The commands of `numba-ptxlink cache`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import arguments as args
from . import files, report
from .said import Said

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from numba_ptxlink.cache.tiered import Described

_NAMES_SHOWN = 3


def add(commands: Any) -> None:
    """Add the command `cache` with its own commands."""
    parser = commands.add_parser("cache", help="inspect, verify, clear, export or import the cache")
    parser.set_defaults(parser=parser)
    its = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    args.add_command(its, "stats", _stats, "statistics of each directory")
    args.add_command(its, "list", _list, "every entry: its functions, when it was used last, what made it")
    args.add_command(its, "clear", _clear, "delete every entry")
    args.add_command(its, "path", _path, "the directory that is written")
    verify = args.add_command(its, "verify", _verify, "check every entry, and delete the damaged ones")
    verify.add_argument("--strict", action="store_true", help="exit with status 1 if an entry was damaged")
    for name, run, what in (
        ("export", _export, "write every entry to one file"),
        ("import", _import, "read the entries of a file that export wrote"),
    ):
        args.add_command(its, name, run, what).add_argument(
            "archive", type=args.path, metavar="FILE.tar", help="the file"
        )


def _stats(_: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    default, lines, content = cache.default(), [], []
    for stats in maintenance.stats(default):
        use = "written" if stats.writable else "read"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(stats.kinds.items())) or "empty"
        sizes = f"{report.size(stats.size)} of {report.size(stats.cap)}"
        lines.append(f"{stats.path}  ({use})\n  {stats.entries} entries, {sizes}: {kinds}")
        content.append({**vars(stats), "path": str(stats.path)})
    unused = default.tiers()[2] if default.settings.cache else (maintenance.OFF,)
    lines += [f"not used: {reason}" for reason in unused]
    brief = "\n".join(f"{each['path']}  {each['entries']} entries, {each['size']} bytes" for each in content)
    return Said({"directories": content, "not used": list(unused)}, "\n".join(lines), brief)


def _list(arguments: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    default, now, rows = cache.default(), time.time(), []
    content: list[dict[str, Any]] = []
    for entry in default.entries():
        try:
            age, names = now - entry.path.stat().st_mtime, list(_functions(entry))
        except OSError:
            continue  # another process has evicted it
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        tool = _tool(entry)
        rows.append((entry.path.name[:12], entry.kind, report.size(entry.size), report.age(age), shown, tool))
        content.append(
            {
                "address": entry.path.name,
                "directory": str(entry.directory),
                "kind": entry.kind,
                "size": entry.size,
                "seconds since last use": round(age, 1),
                "functions": names,
                "made by": tool,
                "parts": dict(entry.parts),
            }
        )
    none = "empty" if default.settings.cache else maintenance.OFF
    header = [("entry", "kind", "size", "last used", "functions", "made by")] if rows else []
    lines = list(report.table([*header, *rows])) if rows else [none]
    if arguments.verbose:
        for each in content:
            lines += ["", each["address"], *(f"    {label}: {part}" for label, part in each["parts"].items())]
    return Said(content, "\n".join(lines), "\n".join(row[0] for row in rows))


def _tool(entry: Described) -> str:
    """Return the tool that made an entry, and its release or the start of its build ID."""
    words = entry.parts.get("tool", "").split()
    if not words:
        words = ["numba-ptxlink", *entry.parts.get("package", "").split()[:1]]
    # A tool of many parts is in the key as a digest.
    return " ".join(word[:16] for word in words) if len(words) > 1 else ""


def _functions(entry: Described) -> Iterator[str]:
    """Yield the functions that an entry has code of; none where it is LTO-IR, or is no code."""
    from numba_ptxlink._formats import elf
    from numba_ptxlink._formats.kinds import CUBIN, PTX, recognise
    from numba_ptxlink._formats.ptx import parse
    from numba_ptxlink.cache.entry import unseal

    try:
        content = unseal(entry.path.read_bytes(), None, None)
    except Exception:  # noqa: BLE001 - a damaged entry, or one under a secret, has no names to show
        return
    if entry.kind == "lower":
        # Deferred: most lists are of a cache without exports.
        from numba_ptxlink._export import lowering

        yield from filter(None, [lowering.symbol(content)])
        return
    code = content.code
    kind = recognise(code)
    if kind == CUBIN:
        for section in elf.read(code).sections:
            if section.name.startswith(".text."):
                yield section.name.removeprefix(".text.")
    elif kind == PTX:
        module = parse(code.decode(errors="replace"))
        yield from (f.prototype.name for f in module.functions if f.defined and f.linkage == "visible")


def _clear(_: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    default = cache.default()
    path, count = maintenance.path(default), maintenance.clear(default)
    return Said({"deleted": count, "path": str(path)}, f"{count} entries deleted from {path}")


def _path(_: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    path = str(maintenance.path(cache.default()))
    return Said({"path": path}, path, path)


def _verify(arguments: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    result = maintenance.verify(cache.default())
    lines = [f"{result.sound} sound, {len(result.removed)} damaged, {len(result.foreign)} with another seal"]
    found = [f"  {path}: {reason}" for path, reason in {**result.removed, **result.foreign}.items()]
    content = {
        "sound": result.sound,
        "removed": {str(path): reason for path, reason in result.removed.items()},
        "foreign": {str(path): reason for path, reason in result.foreign.items()},
    }
    status = 1 if arguments.strict and result.removed else 0
    return Said(content, "\n".join(lines + found), "\n".join(found), status=status)


def _export(arguments: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    path, stream = arguments.archive, files.is_stream(arguments.archive)
    if stream:
        try:
            with path.open("wb") as file:
                count = maintenance.write(cache.default(), file)
        except OSError as error:
            raise files.unwritten(path, error) from error
    else:
        count = maintenance.export(cache.default(), Path(os.path.realpath(path)))
    return Said({"written": count, "file": str(path)}, f"{count} entries written to {path}", aside=stream)


def _import(arguments: argparse.Namespace) -> Said:
    from numba_ptxlink import cache
    from numba_ptxlink.cache import maintenance

    done = maintenance.import_(cache.default(), arguments.archive)
    text = f"{done.taken} entries taken, {done.present} already there, {done.refused} refused"
    return Said({"taken": done.taken, "present": done.present, "refused": done.refused}, text)
