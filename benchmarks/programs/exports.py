"""
Export many Python functions: by `numba-ptxlink export`, or by a loop of stock `cuda.compile` and ptxas.

The loop compiles each function to PTX and LTO-IR, and the PTX to machine code.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path

import tools

ARCH = "sm_90"
HEAD = "import math\nfrom numba_ptxlink import udf\n"
# A function: its number, the number of turns of its loop, and a number in its body.
FUNCTION = """

@udf("float32(float32, float32)")
def f{0}(x, y):
    r = x
    for step in range({1}):
        r = r * y + math.sin(r) * {2}
    if r > 100.0:
        r = math.sqrt(r) - math.exp(-y * {2})
    return r
"""


def main(tool: str, files: int, functions: int, options: list[str], *, edit: bool) -> None:
    """
    Write files of functions, and export them.

    Args:
        tool: "export", or "stock" for numba-cuda without this package.
        files: The number of files.
        functions: The number of functions in each file.
        options: Further options of `numba-ptxlink export`.
        edit: Whether a function in the first file differs from that of every earlier process.
    """
    edited_fraction = time.time_ns() % 10**9 / 1e9 if edit else 0.5
    names = [f"udfs{number}.py" for number in range(files)]
    for name in names:
        fractions = [0.5] * functions
        if name == names[0]:
            fractions[functions // 2] = edited_fraction
        bodies = (FUNCTION.format(n, n % 7 + 3, n + fraction) for n, fraction in enumerate(fractions))
        text = HEAD + "".join(bodies)
        # Do not write a file that has not changed, so that it keeps its time.
        if not Path(name).exists() or Path(name).read_text() != text:
            Path(name).write_text(text)
    if tool == "stock":
        compile_all(names)
        return
    sys.argv = ["numba-ptxlink", "export", *names, "-o", "out", "--quiet", *options]
    if "--arch" not in options:
        sys.argv += ["--arch", ARCH]
    runpy.run_module("numba_ptxlink", run_name="__main__")


def compile_all(names: list[str]) -> None:
    """Compile each function to PTX, LTO-IR and machine code, without this package."""
    import _numba_ptxlink_hook

    _numba_ptxlink_hook.remove()
    from numba import cuda
    from numba.cuda import types

    cc = divmod(int(ARCH[3:]), 10)
    for name in names:
        text = Path(name).read_text().replace("from numba_ptxlink import udf", "udf = lambda _: lambda f: f")
        scope: dict[str, object] = {}
        exec(compile(text, name, "exec"), scope)  # noqa: S102 - this program's file
        for symbol, function in scope.items():
            # Skip the other names of the module, such as "math".
            if not symbol[1:].isdigit():
                continue
            _, ptx = [
                cuda.compile(
                    function,
                    types.float32(types.float32, types.float32),
                    device=True,
                    cc=cc,
                    abi="c",
                    abi_info={"abi_name": symbol},
                    output=output,
                )[0]
                for output in ("ltoir", "ptx")
            ]
            tools.compile_by_ptxas(ptx.encode(), ARCH, "-c")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
