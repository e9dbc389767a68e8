"""What `inspect` and `doctor` found, as text for a terminal or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .doctor import Diagnosis
    from .inspection import Inspection, SymbolReport


def as_json(found: Inspection | Diagnosis) -> str:
    """Return *found* as JSON, with sorted keys."""
    return json.dumps(found.as_dict(), indent=2, sort_keys=True)


def inspection(found: Inspection) -> str:
    """Return what a file holds, one symbol a line, machine code last."""
    header = [found.name, found.kind, *([found.arch] if found.arch else [])]
    lines = ["  ".join(header), *(f"  {name}: {value}" for name, value in found.details.items())]
    lines += [f"  entry: {each.kind} {each.arch}, {each.size} bytes" for each in found.entries]
    for symbol in found.symbols:
        lines += _symbol(symbol)
    lines += [f"  note: {note}" for note in found.notes]
    if found.sass:
        lines += ["", found.sass.rstrip()]
    return "\n".join(lines)


def _symbol(symbol: SymbolReport) -> Iterator[str]:
    state = symbol.kind if symbol.defined else f"{symbol.kind}, asked for"
    yield f"  {symbol.name}  ({state})"
    for text in (symbol.c_prototype, symbol.prototype):
        if text:
            yield f"      {text}"
    costs = [
        (symbol.registers, "registers"),
        (symbol.stack, "bytes of stack"),
        (symbol.shared or None, "bytes of shared memory"),
        (symbol.constant or None, "bytes of constant memory"),
        (symbol.size or None, "bytes"),
    ]
    told = [f"{amount} {unit}" for amount, unit in costs if amount is not None]
    if symbol.spills is not None:
        told.insert(1, f"spills {symbol.spills[0]} bytes stored, {symbol.spills[1]} loaded")
    if told:
        yield f"      {', '.join(told)}"


def diagnosis(found: Diagnosis) -> str:
    """Return the state of an environment: a table of tools, what works, and what helps."""
    lines = [
        f"{'active' if found.active else 'NOT ACTIVE'}: {found.reason}"
        + (f" ({found.trigger})" if found.trigger else ""),
        "",
        *_table([(each.name, each.version or "missing", each.where) for each in found.components]),
        "",
        f"newest PTX that the driver compiles: {found.driver_isa or 'no driver'}",
        "",
    ]
    for ability in found.abilities:
        lines.append(f"{'works' if ability.able else 'FAILS'}  {ability.what}: {ability.why}")
        if ability.stock:
            lines.append(f"       numba-cuda alone: {ability.stock}")
    lines.append("")
    for problem in found.problems:
        lines += [f"problem: {problem.what}", f"   cure: {problem.cure}"]
    if not found.problems:
        lines.append("No problem found.")
    return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
