"""Format results as text for a terminal: reports of `inspect` and `doctor`, tables and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink import _cpu
from numba_ptxlink.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numba_ptxlink.doctor import Diagnosis, Problem
    from numba_ptxlink.inspection import Inspection, SymbolReport


_UNITS = ("KiB", "MiB", "GiB", "TiB")


def format_size(byte_count: int) -> str:
    """Return a number of bytes with a unit, such as "1023 bytes", "1.0 KiB", "99.9 KiB" and "100 KiB"."""
    if byte_count < 1024:
        return f"{byte_count} bytes"
    # The power of 1,024 in the unit: 1 from 2**10 bytes on, 2 from 2**20 bytes on.
    power = min((byte_count.bit_length() - 1) // 10, len(_UNITS))
    amount = byte_count / 1024**power
    return f"{amount:.1f} {_UNITS[power - 1]}" if amount < 100 else f"{amount:.0f} {_UNITS[power - 1]}"


def format_table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a line for each of *rows*, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def format_inspection(report: Inspection) -> str:
    """Format the contents of a file, one symbol per line, the machine code last."""
    # A fat binary, or an object or program of the host, may contain code for several architectures.
    archs = dict.fromkeys(filter(None, (part.arch for part in report.parts or (report,))))
    header = [report.name, report.kind, *([", ".join(archs)] if archs else [])]
    lines = ["  ".join(header), *(f"  {name}: {value}" for name, value in report.details.items())]
    # The symbols of a file with parts are printed with the part that defines them.
    for symbol in () if report.parts else report.symbols:
        lines += _format_symbol(symbol)
    if report.sass:
        lines += ["", report.sass.rstrip()]
    for part in report.parts:
        lines += ["", format_inspection(part)]
    return "\n".join(lines)


def _format_symbol(symbol: SymbolReport) -> Iterator[str]:
    """Yield lines about a symbol: its name, its prototypes, and the resources that its code uses."""
    state = symbol.kind if symbol.defined else f"{symbol.kind}, undefined"
    yield f"  {symbol.name}  ({state})"
    if symbol.c_prototype:
        yield f"      {symbol.c_prototype}"
    if symbol.prototype:
        yield f"      {symbol.prototype}"
    # An amount is None if the file does not contain it. Amounts of 0 are left out, except for the first two.
    amounts = [
        (symbol.registers, "registers"),
        (symbol.stack, "bytes of stack"),
        (symbol.shared or None, "bytes of shared memory"),
        (symbol.constant or None, "bytes of constant memory"),
        (symbol.size or None, "bytes"),
    ]
    resources = [f"{amount} {unit}" for amount, unit in amounts if amount is not None]
    if symbol.spills is not None:
        # Insert the spills after the number of registers: a file with spills has this number, too.
        resources.insert(1, f"spills {symbol.spills[0]} bytes stored, {symbol.spills[1]} loaded")
    if resources:
        yield f"      {', '.join(resources)}"


def format_diagnosis(report: Diagnosis) -> str:
    """Format the state of an environment: what is active and why, the versions, and the cures of problems."""
    state = "active" if report.active else "NOT ACTIVE"
    trigger = f" ({report.trigger})" if report.trigger else ""
    lines = [
        f"{state}: {report.reason}{trigger}",
        *(
            f"  {front_end.name}: {'active' if front_end.active else 'not active'}: {front_end.reason}"
            for front_end in report.front_ends
        ),
        "",
        *format_table(list(report.system.items())),
        "",
        *format_table([(tool.name, tool.version or "missing", tool.where) for tool in report.components]),
        "",
        f"newest PTX that the driver compiles: {report.driver_isa or _unknown_isa_text(report)}",
    ]
    return "\n".join([*lines, "", format_problems(report.problems) or "No problem found."])


def _unknown_isa_text(report: Diagnosis) -> str:
    """Return why the driver's ISA is unknown; without a driver, also how to run programs on the CPU."""
    if any(component.name == "driver" and component.version for component in report.components):
        return "unknown for the driver's release; upgrade numba-ptxlink"
    try:
        _cpu.require_packages()
    except LaunchError:
        return "no driver; programs run on the CPU after python -m pip install 'numba-ptxlink[cpu]'"
    return "no driver; programs run on the CPU by `numba-ptxlink cpu -- COMMAND`, or NUMBA_PTXLINK_DEVICE=cpu"


def format_problems(problem_list: Iterable[Problem]) -> str:
    """Format problems with their cures."""
    return "\n".join(f"problem: {problem.what}\n   cure: {problem.cure}" for problem in problem_list)
