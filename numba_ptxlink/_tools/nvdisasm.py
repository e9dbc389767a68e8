"""Disassemble cubins with nvdisasm."""

from __future__ import annotations

from numba_ptxlink.errors import LinkError

from . import find, programs


def disassemble(code: bytes) -> tuple[str, str]:
    """Return the disassembly of a cubin, and the reason if there is none."""
    tool = find.program("nvdisasm")
    if tool is None:
        return (
            "",
            "There is no nvdisasm for the machine code; install it with `pip install nvidia-cuda-nvdisasm`.",
        )
    with programs.folder(LinkError) as folder:
        path = folder / "code.cubin"
        path.write_bytes(code)
        succeeded, text, log = programs.run([tool, "-c", str(path)])
    return (text, "") if succeeded else ("", f"{tool} failed: {log}")
