"""Translate exported functions to C++ for the host, and explain why other functions cannot be translated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numba_ptxlink._artifacts.target_release import LeftOut
from numba_ptxlink._cabi import header, host_file
from numba_ptxlink._cpu import cxx, host_source
from numba_ptxlink._formats.kinds import HOST
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.header import CFunction


@dataclass(frozen=True)
class HostVersions:
    """
    The host versions of an export.

    Args:
        declarations: All functions and kernels; those with a host version have a `host_macro`, which the
            header defines as `__host__ __device__` for CUDA C++, and as nothing for other compilers.
        file: The content of `stem.host.cpp`.
        reasons: For each function without a host version, by its C name, text of the form "why; cure".
    """

    declarations: list[CFunction]
    file: bytes
    reasons: dict[str, str]

    @property
    def left_out(self) -> list[LeftOut]:
        """The functions without a host version, for `Export.left_out`."""
        left_out = []
        for name, reason in self.reasons.items():
            why, _, cure = reason.partition("; ")
            left_out.append(LeftOut(f"{HOST} version of {name}", why, cure))
        return left_out


def host_versions(stem: str, declarations: Sequence[CFunction], ptx: str) -> HostVersions:
    """
    Translate the functions of an export for the host; kernels have no host version.

    Args:
        stem: The name of the export.
        declarations: The functions and kernels.
        ptx: The PTX of all of them.

    Raises:
        ExportError: No function has a host version.
    """
    names = [function.signature.name for function in declarations if not function.signature.kernel]
    source = host_source.translate(ptx, names)
    if not source.names:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in source.reasons.items())
        raise ExportError(f"No function of {stem} has a host version; leave {HOST} out of emit.{reasons}")
    macro = header.host_macro(stem)
    declarations_with_macro = [
        replace(function, host_macro=macro) if function.signature.name in source.names else function
        for function in declarations
    ]
    lines = host_file.render(stem, declarations_with_macro, source.text, source.names).split("\n")
    # `#line` directives assign the statements of a function to lines of Python. The placeholder after the
    # function becomes a directive that assigns the next line, and all that follow, to the host file itself.
    text = "\n".join(
        f'#line {number + 1} "{stem}.host.cpp"' if line == cxx.LINE_PLACEHOLDER else line
        for number, line in enumerate(lines, start=1)
    )
    return HostVersions(declarations_with_macro, text.encode(), source.reasons)
