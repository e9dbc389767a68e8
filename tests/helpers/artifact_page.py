"""Read the documentation's table of artifacts, and write the sources that its commands compile."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "export.md"
TOOLS = ("nvcc", "nvcc -dlto", "nvlink", "NVRTC + nvJitLink", "driver API", "CMake")
KINDS = ("ptx", "ltoir", "cubin", "fatbin", "object")
UDFS = """
from numba import cuda
from numba_ptxlink import kernel, udf

@udf("float32(float32, int32)")
def damp(value, step):
    return value * step

@kernel("void(float32[::1], float32)")
def scale(array, factor):
    index = cuda.grid(1)
    if index < array.size:
        array[index] *= factor
"""
CALLS = """
#include "udfs.h"
extern "C" __global__ void apply(float* p) { *p = damp(p[1], 2); }
"""
MAIN = """
int main() {
  float* p;
  cudaMalloc(&p, 128);
  apply<<<1, 1>>>(p);
  LAUNCH
  return cudaDeviceSynchronize();
}
"""
LAUNCH = "scale<<<1, 32>>>({p, 32}, 2.0f);"


def rows() -> dict[tuple[str, str], str]:
    """Return the cells of the table, by tool and artifact."""
    table = PAGE.read_text().partition("<!-- commands -->")[2].partition("<!-- /commands -->")[0]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines() if line]
    return {(tool, kind): text for tool, kind, text in cells[2:]}


def command_of(tool: str, kind: str) -> str:
    """Return the command of a row, "" if the row says that it is not possible."""
    text = rows()[tool, kind]
    assert text.startswith(("`", "not possible, because "))
    return text.split("`")[1] if text.startswith("`") else ""


def possible(tool: str) -> list[str]:
    """Return the artifacts that *tool* accepts."""
    return [kind for kind in KINDS if command_of(tool, kind)]


def write_sources(folder: Path) -> None:
    """Write the Python file and the programs that the commands name into *folder*."""
    (folder / "udfs.py").write_text(UDFS)
    (folder / "calls.cu").write_text(CALLS + MAIN.replace("LAUNCH", ""))
    (folder / "both.cu").write_text(CALLS + MAIN.replace("LAUNCH", LAUNCH))
