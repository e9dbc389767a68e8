"""Implement the commands `run` and `compare`, which execute compiled functions on the CPU."""

from __future__ import annotations

import ast
import math
import os
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import LaunchError

from . import arguments as args
from . import output, report
from .output import Report

if TYPE_CHECKING:
    import argparse

_EXAMPLES = (
    "run build/udfs.json damp 2.0 0.5",
    "run udfs.py damp 2.0 times.npy",
    "run udfs.py saxpy 2.0 x.npy y.npy --grid 8 --block 128",
)
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# Differences of one function that are shown without --verbose.
_MAX_SHOWN = 10


def add(commands: Any) -> None:
    """Add the commands to *commands*."""
    run = args.add_command(
        commands, "run", _run, "call a function, or launch a kernel, on the CPU", _EXAMPLES
    )
    run.add_argument(
        "source", type=args.path, metavar="SOURCE", help="an export's .json file, or a Python file to export"
    )
    run.add_argument("name", type=args.text, metavar="NAME", help="the function or kernel")
    run.add_argument(
        "values",
        type=args.text,
        nargs="*",
        metavar="VALUE",
        help="its arguments: Python literals, nan, inf, or .npy files, which it writes to",
    )
    run.add_argument("--grid", type=extents, metavar="N[,N[,N]]", help="the blocks of a kernel's grid")
    run.add_argument("--block", type=extents, metavar="N[,N[,N]]", help="the threads of a block")
    run.add_argument(
        "--shared", type=int, default=0, metavar="BYTES", help="the dynamic shared memory of a block"
    )
    args.add_front_end(run)
    compare = args.add_command(
        commands,
        "compare",
        _compare,
        "show where compiled functions differ from Python; exit with status 1 if one does or none ran",
        ("compare udfs.py", "compare udfs.py --seed 7 --front-end numba-cuda-mlir"),
    )
    compare.add_argument(
        "file", type=args.path, metavar="FILE", help="a Python file with functions to export"
    )
    compare.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="what random arguments are drawn by (default: another each time)",
    )
    args.add_front_end(compare)


def extents(text: str) -> tuple[int, ...]:
    """Return the extents of a grid or a block."""
    return tuple(map(int, text.split(",")))


def _run(arguments: argparse.Namespace) -> Report:
    from numba_ptxlink._launch.library import load

    source: Any = arguments.source
    # What a kernel prints is not the report, which may be JSON.
    with output.stdout_to_stderr():
        if source.suffix == ".py":
            from numba_ptxlink.exporter import export

            source = export(source, emit="ptx", lineinfo=True, front_end=arguments.front_end)
        found: Any = load(source, device="cpu")[arguments.name]
        # Behind what says how to install it.
        import numpy as np

        is_kernel = hasattr(found, "launch")
        sizes = {name: getattr(arguments, name) for name in ("grid", "block") if getattr(arguments, name)}
        if len(sizes) != 2 * is_kernel:
            raise LaunchError(
                f"{arguments.name} is a {'kernel' if is_kernel else 'function'}: give both --grid and "
                "--block for a kernel, and neither for a function."
            )
        # A file that is named twice, by whatever paths, is one array.
        paths = {os.path.realpath(each): each for each in arguments.values if each.endswith(".npy")}
        texts = [paths.get(os.path.realpath(each), each) for each in arguments.values]
        by_text = {each: _value(each) for each in texts}
        given = [by_text[each] for each in texts]
        arrays = {text: each for text, each in by_text.items() if isinstance(each, np.ndarray)}
        before = {text: each.tobytes() for text, each in arrays.items()}
        content, lines = {}, []
        if is_kernel:
            found.launch(*given, **sizes, shared=arguments.shared)
        else:
            result = found(*given)
            content["result"] = _plain(result)
            # Tuples show numbers without the names of their types.
            with np.printoptions(legacy="1.21"):
                lines.append(str(result))
    brief = "".join(lines)
    changed = {text: each for text, each in arrays.items() if before[text] != each.tobytes()}
    for text, array in changed.items():
        np.save(text, array)
        lines.append(f"{text}  {array.dtype} {array.shape}\n{array}")
    if is_kernel or changed:
        content["written"] = {text: _plain(array) for text, array in changed.items()}
    return Report(content, "\n".join(lines) or "No array was changed.", brief)


def _value(text: str) -> Any:
    """Return the value of an argument."""
    import numpy as np

    try:
        if text.endswith(".npy"):
            return np.load(text)
        return _WORDS[text] if text in _WORDS else ast.literal_eval(text)
    except (EOFError, SyntaxError, ValueError) as error:
        raise LaunchError(
            f"{text!r} is no value ({error}); give a number, a tuple such as '(1, 2.5)', None, or the path "
            "of a .npy file."
        ) from error


def _plain(value: Any) -> Any:
    """Return a result as JSON has it; numbers that are not in JSON become text."""
    from numba_ptxlink._launch.results import Record

    if isinstance(value, Record):
        value = tuple(value)
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (tuple, list)):
        return [*map(_plain, value)]
    is_text = isinstance(value, (bytes, complex)) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


def _compare(arguments: argparse.Namespace) -> Report:
    from numba_ptxlink.comparison import compare_file

    with output.stdout_to_stderr():
        comparison = compare_file(arguments.file, arguments.seed, arguments.front_end)
    lines = []
    for declaration, count in comparison.calls.items():
        rows = [difference[1:] for difference in comparison.differences if difference.function == declaration]
        lines.append(f"{declaration}  {count} calls, differences: {len(rows) or 'none'}")
        if rows:
            shown = len(rows) if arguments.verbose else _MAX_SHOWN
            lines += [
                f"  {line}" for line in report.table([("arguments", "Python", "compiled"), *rows[:shown]])
            ]
            lines += [f"  and {len(rows) - shown} more; --verbose shows all"] * (len(rows) > shown)
    if comparison.differences:
        lines.append('"Where compilers differ" in the documentation lists known differences.')
    lines += [f"not compared: {name}: {reason}" for name, reason in comparison.left_out.items()]
    lines.append(f"seed {comparison.seed}")
    differences = [difference._asdict() for difference in comparison.differences]
    content = {**comparison._asdict(), "differences": differences}
    return Report(content, "\n".join(lines), status=1 if differences or not comparison.calls else 0)
