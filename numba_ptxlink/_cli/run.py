"""Implement the commands `run` and `compare`, which execute compiled functions on the CPU."""

from __future__ import annotations

import ast
import math
import os
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import LaunchError

from . import arguments as parsing
from . import output, report
from .output import Report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_EXAMPLES = (
    "run build/udfs.json damp 2.0 0.5",
    "run udfs.py damp 2.0 times.npy",
    "run udfs.py saxpy 2.0 x.npy y.npy --grid 8 --block 128",
)
# Values on the command line that are no Python literals.
_FLOAT_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# The differences of each function that `compare` prints without --verbose.
_MAX_SHOWN_DIFFERENCES = 10


def add(commands: Any) -> None:
    """Add the commands to *commands*."""
    run = parsing.add_command(
        commands, "run", _run, "call a function, or launch a kernel, on the CPU", _EXAMPLES
    )
    run.add_argument(
        "source",
        type=parsing.parse_path,
        metavar="SOURCE",
        help="an export's .json file, or a Python file to export",
    )
    run.add_argument("name", type=parsing.parse_text, metavar="NAME", help="the function or kernel")
    run.add_argument(
        "values",
        type=parsing.parse_text,
        nargs="*",
        metavar="VALUE",
        help="its arguments: Python literals, nan, inf, or .npy files, to which changed arrays are written",
    )
    run.add_argument("--grid", type=parse_extents, metavar="N[,N[,N]]", help="the blocks of a kernel's grid")
    run.add_argument("--block", type=parse_extents, metavar="N[,N[,N]]", help="the threads of a block")
    run.add_argument(
        "--shared", type=int, default=0, metavar="BYTES", help="the dynamic shared memory of a block"
    )
    parsing.add_front_end(run)
    compare = parsing.add_command(
        commands,
        "compare",
        _compare,
        "show where compiled functions differ from Python; exit with status 1 if any differs or none ran",
        ("compare udfs.py", "compare udfs.py --seed 7 --front-end numba-cuda-mlir"),
    )
    compare.add_argument(
        "file", type=parsing.parse_path, metavar="FILE", help="a Python file with functions to export"
    )
    compare.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="the seed of the random arguments (default: a new one in each run)",
    )
    parsing.add_front_end(compare)


def parse_extents(text: str) -> tuple[int, ...]:
    """Return the extents of a grid or a block, such as (8, 2) for "8,2"."""
    return tuple(map(int, text.split(",")))


def _run(arguments: argparse.Namespace) -> Report:
    # Text printed by kernels and imported modules must not mix with the report, which may be JSON.
    with output.stdout_to_stderr():
        item = _load_item(arguments)
        sizes = _launch_sizes(arguments, is_kernel=hasattr(item, "launch"))
        values = _Values(arguments.values)
        content: dict[str, Any] = {}
        result_text = ""
        if sizes:
            item.launch(*values.in_order, **sizes, shared=arguments.shared)
        else:
            result = item(*values.in_order)
            content["result"], result_text = _to_json(result), _as_text(result)
    changed = values.save_changed()
    lines = [
        result_text,
        *(f"{path}  {array.dtype} {array.shape}\n{array}" for path, array in changed.items()),
    ]
    if sizes or changed:
        content["written"] = {path: _to_json(array) for path, array in changed.items()}
    text = "\n".join(filter(None, lines)) or "No array was changed."
    # With --quiet, only the result is printed: nothing for a kernel.
    return Report(content, text, brief=result_text)


def _load_item(arguments: argparse.Namespace) -> Any:
    """Return the function or kernel of an export, or of a Python file, which is exported first."""
    from numba_ptxlink._launch.library import load

    source: Any = arguments.source
    if source.suffix == ".py":
        from numba_ptxlink.exporter import export

        # With line numbers, errors of the run name the line of Python.
        source = export(source, emit="ptx", lineinfo=True, front_end=arguments.front_end)
    return load(source, device="cpu")[arguments.name]


def _launch_sizes(arguments: argparse.Namespace, *, is_kernel: bool) -> dict[str, Any]:
    """
    Return grid and block of a kernel as keyword arguments; {} for a function.

    Raises:
        LaunchError: A kernel lacks one of them, or a function has one.
    """
    sizes = {name: getattr(arguments, name) for name in ("grid", "block") if getattr(arguments, name)}
    if len(sizes) != (2 if is_kernel else 0):
        raise LaunchError(
            f"{arguments.name} is a {'kernel' if is_kernel else 'function'}: give both --grid and "
            "--block for a kernel, and neither for a function."
        )
    return sizes


class _Values:
    """
    The arguments of a call. A file that occurs twice, even by different paths, is one array.

    Args:
        texts: The arguments on the command line.

    Attributes:
        in_order: The values of the arguments.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import numpy as np

        # If several paths lead to one file, replace each by the last of them; literals stay as they are.
        path_of_file = {os.path.realpath(text): text for text in texts if text.endswith(".npy")}
        unified_texts = [path_of_file.get(os.path.realpath(text), text) for text in texts]
        value_of_text = {text: _parse_value(text) for text in unified_texts}
        self.in_order = [value_of_text[text] for text in unified_texts]
        self._arrays = {path: value for path, value in value_of_text.items() if isinstance(value, np.ndarray)}
        self._contents = {path: array.tobytes() for path, array in self._arrays.items()}

    def save_changed(self) -> dict[str, Any]:
        """Write the arrays that a call has changed to their files; return the arrays by path."""
        import numpy as np

        changed = {
            path: array for path, array in self._arrays.items() if array.tobytes() != self._contents[path]
        }
        for path, array in changed.items():
            np.save(path, array)
        return changed


def _as_text(result: Any) -> str:
    import numpy as np

    # NumPy 2 would print a tuple of numbers with their types: (np.float32(1.0),).
    with np.printoptions(legacy="1.21"):
        return str(result)


def _parse_value(text: str) -> Any:
    """Return the value of an argument: the array in a .npy file, or the value of a literal."""
    import numpy as np

    try:
        if text.endswith(".npy"):
            return np.load(text)
        return _FLOAT_WORDS[text] if text in _FLOAT_WORDS else ast.literal_eval(text)
    except (EOFError, SyntaxError, ValueError) as error:
        raise LaunchError(
            f"{text!r} is not a value ({error}); pass a number, a tuple such as '(1, 2.5)', None, or the "
            "path of a .npy file."
        ) from error


def _to_json(value: Any) -> Any:
    """Return a result for JSON: lists for arrays, and texts for bytes, complex numbers, NaN and infinity."""
    from numba_ptxlink._launch.results import Record

    if isinstance(value, Record):
        value = tuple(value)
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (tuple, list)):
        return [*map(_to_json, value)]
    is_text = isinstance(value, (bytes, complex)) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


def _compare(arguments: argparse.Namespace) -> Report:
    from numba_ptxlink.comparison import compare_file

    with output.stdout_to_stderr():
        comparison = compare_file(arguments.file, arguments.seed, arguments.front_end)
    lines = []
    for declaration, count in comparison.calls.items():
        # The first field, the declaration, is in the line above the table; the others are its columns.
        rows = [difference[1:] for difference in comparison.differences if difference.function == declaration]
        lines.append(f"{declaration}  {count} calls, differences: {len(rows) or 'none'}")
        if rows:
            max_rows = len(rows) if arguments.verbose else _MAX_SHOWN_DIFFERENCES
            table = report.format_table([("arguments", "Python", "compiled"), *rows[:max_rows]])
            lines += [f"  {line}" for line in table]
            if len(rows) > max_rows:
                lines.append(f"  and {len(rows) - max_rows} more; --verbose shows all")
    if comparison.differences:
        lines.append('"Where compilers differ" in the documentation lists known differences.')
    lines += [f"not compared: {name}: {reason}" for name, reason in comparison.left_out.items()]
    lines.append(f"seed {comparison.seed}")
    differences = [difference._asdict() for difference in comparison.differences]
    content = {**comparison._asdict(), "differences": differences}
    return Report(content, "\n".join(lines), status=1 if differences or not comparison.calls else 0)
