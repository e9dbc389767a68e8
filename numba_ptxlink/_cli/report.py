"""Format results as text for a terminal: what `inspect` and `doctor` find, tables and sizes."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numba_ptxlink.doctor import Diagnosis, Problem
    from numba_ptxlink.inspection import Inspection, SymbolReport


_LEAST_WIDTH = 40
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """Return a number of bytes in the unit that shows it in at most four digits."""
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    amount = count / 1024**power
    return f"{amount:.1f} {_UNITS[power - 1]}" if amount < 100 else f"{amount:.0f} {_UNITS[power - 1]}"


def width() -> int | None:
    """Return the columns of the terminal that the standard output is, None where it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _LEAST_WIDTH)


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield *rows* with their columns aligned; on a terminal, cells are wrapped so that they fit."""
    widths, columns = [max(map(len, column)) for column in zip(*rows, strict=True)], width()
    if columns is not None and rows:
        room = columns - 2 * (len(widths) - 1)
        words = [len(word) for row in rows for word in row[-1].split()]
        # The last one gives way between its words, then whichever is the widest.
        widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), *words, 1)
        while sum(widths) > room:
            widths[widths.index(max(widths))] -= 1
    for row in rows:
        cells = [
            [cell] if len(cell) <= size else textwrap.wrap(cell, size)
            for cell, size in zip(row, widths, strict=True)
        ]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            yield "  ".join(part.ljust(size) for part, size in zip(line, widths, strict=True)).rstrip()


def _wrapped(line: str, indent: int) -> str:
    """Return *line*, wrapped on a terminal, what follows indented."""
    columns = width()
    if columns is None:
        return line
    return textwrap.fill(
        line, columns, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def inspection(report: Inspection) -> str:
    """Format the contents of a file, one symbol per line, the machine code last."""
    # A container may hold code for several architectures.
    archs = dict.fromkeys(filter(None, (part.arch for part in report.parts or (report,))))
    header = [report.name, report.kind, *([", ".join(archs)] if archs else [])]
    lines = ["  ".join(header), *(f"  {name}: {value}" for name, value in report.details.items())]
    lines += [
        f"  entry: {entry.kind} {entry.arch}{'' if entry.size is None else f', {entry.size} bytes'}"
        for entry in report.entries
    ]
    for symbol in () if report.parts else report.symbols:
        lines += _symbol(symbol)
    if report.sass:
        lines += ["", report.sass.rstrip()]
    for part in report.parts:
        lines += ["", inspection(part)]
    return "\n".join(lines)


def _symbol(symbol: SymbolReport) -> Iterator[str]:
    state = symbol.kind if symbol.defined else f"{symbol.kind}, asked for"
    yield f"  {symbol.name}  ({state})"
    if symbol.c_prototype:
        yield f"      {'' if symbol.exact else 'types not recorded: '}{symbol.c_prototype}"
    if symbol.prototype:
        yield f"      {symbol.prototype}"
    costs = [
        (symbol.registers, "registers"),
        (symbol.stack, "bytes of stack"),
        (symbol.shared or None, "bytes of shared memory"),
        (symbol.constant or None, "bytes of constant memory"),
        (symbol.size or None, "bytes"),
    ]
    resources = [f"{amount} {unit}" for amount, unit in costs if amount is not None]
    if symbol.spills is not None:
        resources.insert(1, f"spills {symbol.spills[0]} bytes stored, {symbol.spills[1]} loaded")
    if resources:
        yield f"      {', '.join(resources)}"


def diagnosis(report: Diagnosis) -> str:
    """Format the state of an environment: what is active and why, the versions, and the cures of problems."""
    lines = [
        f"{'active' if report.active else 'NOT ACTIVE'}: {report.reason}"
        + (f" ({report.trigger})" if report.trigger else ""),
        *(
            f"  {each.name}: {'active' if each.active else 'not active'}: {each.reason}"
            for each in report.front_ends
        ),
        "",
        *table(list(report.system.items())),
        "",
        *table([(tool.name, tool.version or "missing", tool.where) for tool in report.components]),
        "",
        f"newest PTX that the driver compiles: {report.driver_isa or 'no driver'}",
    ]
    return "\n".join([*lines, "", problems(report.problems) or "No problem found."])


def problems(found: Iterable[Problem]) -> str:
    """Format problems with their cures."""
    return "\n".join(
        _wrapped(line, 9)
        for problem in found
        for line in (f"problem: {problem.what}", f"   cure: {problem.cure or 'none needed'}")
    )
