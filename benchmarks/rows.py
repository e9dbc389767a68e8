"""Define the measures of each part, with the contenders whose processes `protocol` runs."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .protocol import PROGRAMS, Contender, Measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rows = Callable[["Setup"], Iterator[Measure]]

# The names of contenders; {} is that of a front end.
PLUGIN = "{} + ptxlink"
LOAD, CACHED = "load()", "numba-cuda, cache=True"
ON_CPU = 'device="cpu"'
CPU_DEVICE = "NUMBA_PTXLINK_DEVICE=cpu"
# The front end that each part measures.
FRONT_ENDS = {"start": "numba-cuda", "mlir": "numba-cuda-mlir"}
# The checks besides memcheck.
CHECKS = ("initcheck", "racecheck", "synccheck")
NO_DEVICE = "there is no device"
# Kinds of kernels, and states of the caches. The noise is measured for kernels without a link file, with
# caches off and full.
KERNELS: tuple[tuple[str, Any], ...] = (
    ("no link file", "off"),
    ("a link file", "full"),
    ("a link file", "empty"),
    ("no link file", "full"),
    ("no link file", "empty"),
    ("cache=True", "full"),
)


@dataclass(frozen=True)
class Setup:
    """
    The machine and the options that the measures depend on.

    Args:
        arch: The architecture of the device, "" without a device.
        quick: Whether few functions and files are measured.
        toolkit: The release of another toolkit, whose path is in CUDA_HOME; "" for none.
    """

    arch: str = ""
    quick: bool = False
    toolkit: str = ""

    @property
    def skip_reason(self) -> str:
        """The reason why measures that need a device are skipped; "" if there is one."""
        return "" if self.arch else NO_DEVICE


def program(name: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs programs/*name*.py."""
    return (str(PROGRAMS / f"{name}.py"), *arguments)


def kernels(setup: Setup, front_end: str, caches: Any, kind: str, *, texts: bool = False) -> Contender:
    """
    Return the contender that runs kernels by a front end without this package.

    Args:
        setup: The machine and the options.
        front_end: The front end, and name of the contender.
        caches: The state of the caches, as for `Contender`.
        kind: A kind of kernel, of `KERNELS`.
        texts: Whether Python is also compiled to PTX.
    """
    task = {
        "front_end": front_end,
        "linked": kind == "a link file",
        "cache": kind == "cache=True",
        "device": bool(setup.arch),
        "texts": texts,
    }
    command = program("kernels", json.dumps(task))
    return Contender(front_end, command, caches, {"NUMBA_PTXLINK": "0"})


def with_plugin(stock: Contender) -> Contender:
    """Return the contender that runs the kernels of *stock* with this package."""
    return Contender(
        PLUGIN.format(stock.name), stock.command, stock.caches, {"NUMBA_PTXLINK": "1"}, uses_package=True
    )


def first_and_later(part: str, setup: Setup) -> Iterator[Measure]:
    """Yield the measures of a front end, from the start of Python to kernels that have run."""
    front_end = FRONT_ENDS[part]
    skip_reason = (
        "" if importlib.util.find_spec(front_end.replace("-", "_")) else f"{front_end} is not installed"
    )
    off, full = (f"no link file, caches {state}" for state in ("off", "full"))
    for kind, state in KERNELS[:2] if setup.quick else KERNELS:
        stock = kernels(setup, front_end, state, kind, texts=state == "off")
        name = f"{kind}, caches {state}"
        # numba-cuda-mlir needs a driver to compile C++.
        needs_device = front_end == "numba-cuda-mlir" and kind == "a link file"
        yield Measure(
            part,
            name,
            (stock, with_plugin(stock)),
            again=stock.name if name in {off, full} else "",
            noise=full if state == "full" else off,
            skip_reason=skip_reason or (setup.skip_reason if needs_device else ""),
        )


def links(tool: str, caches: Any) -> Contender:
    """Return the contender that links pairs of PTX by *tool*: "nvJitLink" or "link()"."""
    prepare = program("links", "prepare")
    return Contender(tool, program("links", tool), caches, prepare=prepare, uses_package=tool == "link()")


def link(setup: Setup) -> Iterator[Measure]:
    """Yield the measures of links of two inputs."""
    for state in ("off",) if setup.quick else ("off", "full"):
        contenders = links("nvJitLink", state), links("link()", state)
        yield Measure("link", f"two inputs, caches {state}", contenders, again="nvJitLink")


def export(
    setup: Setup,
    name: str,
    caches: Any = "off",
    *options: str,
    functions: int = 100,
    files: int = 1,
    edit: bool = False,
) -> Contender:
    """
    Return the contender that exports functions, or compiles them with stock numba-cuda.

    Args:
        setup: The machine and the options.
        name: The name of the contender; "cuda.compile" for numba-cuda.
        caches: The state of the caches, as for `Contender`.
        options: Further options of `numba-ptxlink export`.
        functions: The number of functions in each file.
        files: The number of files.
        edit: Whether each process edits one function first.
    """
    tool = "stock" if name == "cuda.compile" else "export"
    task = {"tool": tool, "files": files, "functions": functions, "options": options, "edit": edit}
    if setup.quick:
        task["functions"] = min(functions, 3)
    command = program("exports", json.dumps(task))
    # An export compiles in children of a server process, which does not wait for them.
    return Contender(name, command, caches, uses_package=tool == "export", detached=tool == "export")


def exports(setup: Setup) -> Iterator[Measure]:
    """Yield the measure of an export of many functions, beside stock `cuda.compile`."""
    contenders = export(setup, "cuda.compile", "empty"), export(setup, "export", "empty")
    yield Measure("export", name_many_functions(setup), contenders, again="export")


def edits(setup: Setup) -> Iterator[Measure]:
    """Yield the measure of further exports of as many functions: after an edit of one, and by two jobs."""
    contenders = (
        export(setup, "export", "empty"),
        export(setup, "export, one edit", "full", edit=True),
        export(setup, "export -j 2", "empty", "-j", "2"),
    )
    yield Measure("edits", name_many_functions(setup), contenders, again="export")


def name_many_functions(setup: Setup) -> str:
    """Return the name of measures of an export of many functions."""
    return "3 functions" if setup.quick else "100 functions"


def files(setup: Setup) -> Iterator[Measure]:
    """Yield the measures of exports of many files, and of another toolkit's LTO-IR."""
    if setup.quick:
        return
    export_files = functools.partial(export, setup, functions=1, files=40)
    contenders = export_files("export", "empty"), export_files("export -j 2", "empty", "-j", "2")
    name = "40 files in one command"
    yield Measure("files", name, contenders, again="export")
    here = export(setup, "of this environment", "empty", "--emit", "ltoir", functions=10)
    other = export(
        setup, "of another toolkit", "empty", "--emit", "ltoir", "--cuda", setup.toolkit, functions=10
    )
    skip_reason = "" if setup.toolkit else "--toolkit names none"
    yield Measure("files", "LTO-IR of 10 functions", (here, other), noise=name, skip_reason=skip_reason)


def load(setup: Setup) -> Iterator[Measure]:
    """Yield the measure of an exported kernel that is loaded."""
    prepare = program("first_kernel", "prepare", setup.arch)
    contenders = [
        Contender(
            name,
            program("first_kernel", name),
            "full",
            {"NUMBA_PTXLINK": "0"},
            () if name == CACHED else prepare,
            uses_package=name == LOAD,
        )
        for name in (CACHED, LOAD, "cuda.core")
    ]
    pairs = ((LOAD, CACHED), (LOAD, "cuda.core"))
    yield Measure(
        "load", "the first kernel", tuple(contenders), pairs, again=CACHED, skip_reason=setup.skip_reason
    )


def call(setup: Setup) -> Iterator[Measure]:
    """Yield the measure of the ways to call a function from C++."""
    names = ["one source", "LTO", "PTX inlined", "PTX", *["nvcc"] * bool(shutil.which("nvcc"))]
    contenders = tuple(
        Contender(
            name,
            program("calls", "run"),
            prepare=program("calls", "prepare", name, setup.arch),
            uses_package=name != "nvcc",
        )
        for name in names
    )
    pairs = [(name, "one source") for name in names[1:]] + [("PTX inlined", "LTO")]
    yield Measure(
        "call", "a call in a loop", contenders, tuple(pairs), "one source", skip_reason=setup.skip_reason
    )


def cpu(setup: Setup) -> Iterator[Measure]:
    """Yield the measures of kernels and functions that run without a GPU."""
    prepare = program("cpu", "prepare")
    unchecked_name = f"{ON_CPU}, checks=False"
    contenders = (
        Contender(ON_CPU, program("cpu", "checked"), "full", prepare=prepare, uses_package=True),
        Contender(unchecked_name, program("cpu", "unchecked"), "full", prepare=prepare, uses_package=True),
        Contender(
            CPU_DEVICE,
            program("cpu", "device"),
            "full",
            environ={"NUMBA_PTXLINK_DEVICE": "cpu"},
            uses_package=True,
        ),
        Contender("NumPy", program("cpu", "NumPy")),
        Contender("CPython", program("cpu", "CPython")),
        Contender("numba's simulator", program("cpu", "simulator"), environ={"NUMBA_ENABLE_CUDASIM": "1"}),
    )
    pairs = [(ON_CPU, peer) for peer in ("NumPy", "CPython", "numba's simulator")]
    pairs += [(unchecked_name, ON_CPU), (CPU_DEVICE, "numba's simulator")]
    yield Measure("cpu", "kernels and functions", contenders, tuple(pairs), again=ON_CPU)
    if setup.quick:
        return
    contenders = tuple(
        Contender(f"caches {state}", program("cpu", "checked"), state, prepare=prepare, uses_package=True)
        for state in ("empty", "full")
    )
    yield Measure("cpu", "compiled and kept", contenders, noise="kernels and functions")
    # The argument of the program for each check.
    arguments = {"none": "unchecked", "memcheck": "checked", **{check: check for check in CHECKS}}
    contenders = tuple(
        Contender(check, program("cpu", argument), "full", prepare=prepare, uses_package=True)
        for check, argument in arguments.items()
    )
    yield Measure("cpu", "each check", contenders, noise="kernels and functions")
    contenders = tuple(
        Contender(f"1 kernel of {count}", program("cpu", stem), "off", prepare=prepare, uses_package=True)
        for stem, count in (("one", 1), ("forty", 40))
    )
    yield Measure("cpu", "a module", contenders, again="1 kernel of 1")


def host(_: Setup) -> Iterator[Measure]:
    """Yield the measure of functions that C++ on the host calls."""
    prepare = program("host", "prepare")
    names = ("C++", "included", "-flto")
    contenders = tuple(
        Contender(name, program("host", name), prepare=prepare, uses_package=name != "C++") for name in names
    )
    pairs = tuple((name, "C++") for name in names[1:])
    yield Measure("host", "a function in a loop", contenders, pairs, again="C++")


def assemble(setup: Setup) -> Iterator[Measure]:
    """Yield the measure of compilers of PTX."""
    names = ["nvJitLink", "assemble()", "ptxas", *["the driver"] * bool(setup.arch)]
    contenders = tuple(
        Contender(name, program("ptx", "compile", name), uses_package=name == "assemble()") for name in names
    )
    pairs = tuple(("assemble()", name) for name in names if name != "assemble()")
    yield Measure("assemble", "one PTX", contenders, pairs, again="nvJitLink")


def read(_: Setup) -> Iterator[Measure]:
    """Yield the measure of parsing of PTX, beside assembling."""
    contenders = tuple(
        Contender(name, program("ptx", "read", name), uses_package=True) for name in ("assemble()", "reading")
    )
    yield Measure("read", "one PTX", contenders, again="reading")


def python(_: Setup) -> Iterator[Measure]:
    """Yield the measure of starts of Python."""
    prepare = program("starts", "prepare")
    contenders = tuple(
        Contender(f"{name} the hook", program("starts", name), prepare=prepare, uses_package=name == "with")
        for name in ("without", "with")
    )
    yield Measure("python", "an interpreter", contenders, again="without the hook")


# The title of each part, and the function that yields its measures.
PARTS: dict[str, tuple[str, Rows]] = {
    "start": (
        "Start of Python to kernels that have run: numba-cuda",
        functools.partial(first_and_later, "start"),
    ),
    "mlir": ("The same: numba-cuda-mlir", functools.partial(first_and_later, "mlir")),
    "link": ("Two PTX, or two LTO-IR, to a cubin", link),
    "export": ("Many functions to artifacts", exports),
    "edits": ("The same after an edit of one, and by two jobs", edits),
    "files": ("Many files in one command, and another toolkit's LTO-IR", files),
    "load": ("An exported kernel, without Numba", load),
    "call": ("A Python function that C++ calls", call),
    "cpu": ("Kernels and functions without a GPU", cpu),
    "host": ("Exported functions on the host, beside C++", host),
    "assemble": ("PTX to a cubin", assemble),
    "read": ("Reading PTX, beside assembling it", read),
    "python": ("The start of Python, with the import hook", python),
}
