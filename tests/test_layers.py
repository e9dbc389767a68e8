"""The layers of the package: the direction of imports, and the cost of importing it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import processes
import pytest

import numba_ptxlink as pl

PACKAGE = Path(pl.__file__).parent
ROOT = Path(__file__).parents[1]
# From the bottom up: each imports from those before it, and from within itself.
FLOORS = (
    "errors",
    "_version",
    "_locks",
    "_arch",
    "_config",
    "_native",
    "_formats",
    "cache",
    "_tools",
    "_cpu",
    "_cabi",
    "assembler",
    "_front_end",
    "abi",
    "_fusion",
    "_link",
    "_artifacts",
    "_launch",
    "_export",
    "_numba_cuda",
    "_numba_cuda_mlir",
    "exporter",
    "_comparison",
    "comparison",
    "_plugin",
    "linker",
    "inspection",
    "doctor",
    "_cli",
    "cli",
    "__main__",
)


def imported(path: Path) -> set[str]:
    """Return the floors that a module imports from or names, at any depth of its text."""
    within = path.relative_to(PACKAGE).parts[:-1]
    floors: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = ["numba_ptxlink", *within[: len(within) + 1 - node.level]] if node.level else []
            base = ".".join([*around, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        floors |= {name.split(".")[1] for name in names if name.startswith("numba_ptxlink.")}
    return floors & set(FLOORS)


def floor(path: Path) -> str:
    """Return the floor that a module is on."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


MODULES = {path: imported(path) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"}


def test_every_module_has_its_floor():
    """The table of floors lists every module and package, and nothing else."""
    modules = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules - {"__init__"} == set(FLOORS)


def test_imports_point_downwards():
    """Every import, be it deferred, points to a lower floor or stays on its own."""
    height = {name: number for number, name in enumerate(FLOORS)}
    assert [] == [
        f"{path} -> {target}"
        for path, targets in MODULES.items()
        for target in targets
        if height[floor(path)] < height[target]
    ]
    assert {"_tools", "errors"} <= MODULES[PACKAGE / "_link" / "plan.py"]


def test_front_ends_are_named_by_nobody():
    """A front end's package is imported by its own modules alone; `_front_end.registry` loads it by name."""
    packages = {"_numba_cuda", "_numba_cuda_mlir"}
    assert [] == [path for path, targets in MODULES.items() if targets & packages - {floor(path)}]


def test_what_is_private_to_a_front_end_is_named_in_its_package():
    """No other package imports or names a module of numba-cuda or of numba-cuda-mlir."""
    private = re.compile(
        r"numba\.cuda\.(?:core|cudadrv|codegen|compiler|dispatcher|target|memory_management)\b"
        r"|^ *(?:from|import) (?:numba|numba_cuda|numba_cuda_mlir|llvmlite)\b",
        re.MULTILINE,
    )
    # The execution of PTX uses llvmlite without any front end.
    llvmlite_user = PACKAGE / "_cpu" / "machine_code.py"
    named = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("_numba_cuda", "_numba_cuda_mlir")
        for match in private.finditer(path.read_text())
        if not (path == llvmlite_user and match[0].endswith("llvmlite"))
    ]
    assert named == []


def test_the_architecture_names_every_floor():
    """ARCHITECTURE.md states the purpose of each module and package."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert [name for name in FLOORS if f"`{name}.py`" not in text and f"`{name}/`" not in text] == []


def test_importing_the_package_imports_neither_numba_nor_cuda():
    """`import numba_ptxlink`, status() and the errors cost no other package."""
    program = (
        "import sys, numba_ptxlink as pl; pl.status(); pl.LinkError; pl.Arch.of('sm_90');"
        "costly = {'numba', 'cuda', 'numpy', 'cffi', 'llvmlite'};"
        "print(sorted(costly & {name.split('.')[0] for name in sys.modules}))"
    )
    run = processes.run(sys.executable, "-I", "-c", program)
    assert run.stdout.strip() == "[]"


def test_a_link_of_one_ptx_imports_no_reader_of_its_statements():
    """Neither the lexer nor a parser is loaded for PTX as compilers write it."""
    ptx = "// of a compiler\n\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
    program = (
        f"import sys, numba_ptxlink as pl; pl.link({ptx!r}, arch='sm_90');"
        "print('numba_ptxlink.assembler' in sys.modules, 'numba_ptxlink._formats.ptx' in sys.modules)"
    )
    run = processes.run(sys.executable, "-c", program)
    assert run.stdout == "True False\n"


def test_every_public_name_is_there():
    """Each name of `__all__` can be had, has a docstring, and shows up in dir()."""
    for name in pl.__all__:
        assert getattr(pl, name).__doc__, name
        assert name in dir(pl)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pl.nothing  # noqa: B018
