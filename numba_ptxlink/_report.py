"""Format the results of `inspect` and `doctor` as text for a terminal or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._tools.compilers import Compiler
    from .doctor import Diagnosis
    from .inspection import Inspection, SymbolReport


def as_json(report: Inspection | Diagnosis) -> str:
    """Return *report* as JSON, with sorted keys."""
    return json.dumps(report.as_dict(), indent=2, sort_keys=True)


def inspection(report: Inspection) -> str:
    """Format the contents of a file, one symbol per line, the machine code last."""
    header = [report.name, report.kind, *([report.arch] if report.arch else [])]
    lines = ["  ".join(header), *(f"  {name}: {value}" for name, value in report.details.items())]
    lines += [f"  entry: {entry.kind} {entry.arch}, {entry.size} bytes" for entry in report.entries]
    for symbol in () if report.parts else report.symbols:
        lines += _symbol(symbol)
    lines += [f"  note: {note}" for note in report.notes]
    if report.sass:
        lines += ["", report.sass.rstrip()]
    for part in report.parts:
        lines += ["", inspection(part)]
    return "\n".join(lines)


def _symbol(symbol: SymbolReport) -> Iterator[str]:
    state = symbol.kind if symbol.defined else f"{symbol.kind}, asked for"
    yield f"  {symbol.name}  ({state})"
    if symbol.demangled:
        yield f"      {symbol.demangled}"
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
    callees = [*symbol.calls, *(["what a pointer points to"] if symbol.calls_pointers else [])]
    if callees:
        yield f"      calls {', '.join(callees)}"


def diagnosis(report: Diagnosis) -> str:
    """Format the state of an environment: a table of tools, what works, and the cures of problems."""
    lines = [
        f"{'active' if report.active else 'NOT ACTIVE'}: {report.reason}"
        + (f" ({report.trigger})" if report.trigger else ""),
        *(
            f"  {each.name}: {'active' if each.active else 'not active'}: {each.reason}"
            for each in report.front_ends
        ),
        "",
        *_table([(tool.name, tool.version or "missing", tool.where) for tool in report.components]),
        "",
        *map(_compiler, report.compilers),
        "",
        f"newest PTX that the driver compiles: {report.driver_isa or 'no driver'}",
        "",
    ]
    for ability in report.abilities:
        lines.append(f"{'works' if ability.able else 'FAILS'}  {ability.what}: {ability.why}")
        if ability.stock:
            lines.append(f"       Numba alone: {ability.stock}")
    lines.append("")
    for problem in report.problems:
        lines += [f"problem: {problem.what}", f"   cure: {problem.cure}"]
    if not report.problems:
        lines.append("No problem found.")
    return "\n".join(lines)


def _compiler(compiler: Compiler) -> str:
    ptx = f"{'writes' if compiler.writes else 'reads up to'} PTX {compiler.ptx or 'of an unknown version'}"
    return f"{compiler.name} {ptx}, for {', '.join(compiler.archs) or 'architectures that nothing lists'}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
