"""The shape of the package: which way imports point, and what importing it costs."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    "_cabi",
    "assembler",
    "_front_end",
    "abi",
    "_link",
    "_export",
    "_numba_cuda",
    "_numba_cuda_mlir",
    "exporter",
    "_plugin",
    "linker",
    "inspection",
    "doctor",
    "_cli",
    "cli",
    "__main__",
)
MOST_IN_A_DIRECTORY = 29


def name_of(path: Path, package: Path) -> str:
    """Return the dotted name of the module at *path*, below *package*."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(text)


def imports(package: Path) -> dict[str, set[str]]:
    """Return what each module of *package* imports from it or names, at any depth of its text."""
    paths = {name_of(path, package): path for path in package.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        found[module] = set()
        for node in ast.walk(parsed(path.read_text())):
            for name in _named(node, module, path, package.name):
                # A name that is no module is something inside the module before its last dot.
                known = name if name in paths else name.rpartition(".")[0]
                if known in paths:
                    found[module].add(known)
            found[module] |= {*_spelled(node, module, path, package.name)} & paths.keys()
        found[module].discard(module)
    return found


def _named(node: ast.AST, module: str, path: Path, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            # The package itself offers names of all floors, whose modules it imports.
            if alias.name == package or alias.name.startswith(f"{package}."):
                yield alias.name.partition(".")[2]
    if not isinstance(node, ast.ImportFrom):
        return
    base = (node.module or "").split(".") if node.module else []
    if node.level:
        base = [*_around(module, path, node.level), *base]
    elif base[:1] == [package]:
        base = base[1:]
    else:
        return
    yield from (".".join([*base, alias.name]) for alias in node.names)


def _spelled(node: ast.AST, module: str, path: Path, package: str) -> Iterator[str]:
    """Yield what may be the name of a module in a string, as it is or relative to this one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith(f"{package}."):
            yield node.value.partition(".")[2].rstrip(".")
    elif (
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
    ):
        named = node.args[0] if node.args else None
        if isinstance(named, ast.Constant) and (relative := re.fullmatch(r"(\.+)(.+)", str(named.value))):
            yield ".".join([*_around(module, path, len(relative[1])), relative[2]])


def _around(module: str, path: Path, level: int) -> list[str]:
    """Return the package that so many dots stand for in a module."""
    here = module.split(".") if module else []
    depth = level - (path.name == "__init__.py")
    return here[: max(0, len(here) - depth)]


def upward(package: Path, floors: Sequence[str]) -> list[str]:
    """Return the imports that point from a floor to a higher one."""
    height = {name: number for number, name in enumerate(floors)}
    return sorted(
        f"{module} -> {target}"
        for module, targets in imports(package).items()
        for target in targets
        if module and target
        if height[module.partition(".")[0]] < height[target.partition(".")[0]]
    )


def circles(package: Path) -> list[str]:
    """Return a circle of imports, as the modules along it; nothing where there is none."""
    graph = {
        # Importing from a module imports the packages around it, which import nothing but what they offer.
        module: {target for target in targets if not module.startswith(f"{target}.")}
        for module, targets in imports(package).items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_has_its_floor():
    """The table of floors lists every module and package, and nothing else."""
    there = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__"} == set(FLOORS)


def test_imports_point_downwards():
    """Every import, be it deferred, points to a lower floor or stays on its own."""
    assert upward(PACKAGE, FLOORS) == []


def test_front_ends_are_named_by_nobody():
    """A front end's package is imported by its own modules alone; `_front_end.registry` loads it by name."""
    packages = {f"_{name.replace('-', '_')}" for name in FRONT_ENDS}
    assert packages < set(FLOORS)
    past = [
        f"{module} -> {target}"
        for module, targets in imports(PACKAGE).items()
        for target in targets
        if (package := target.partition(".")[0]) in packages
        if module.partition(".")[0] != package
    ]
    assert past == []


def test_there_is_no_circle_of_imports():
    """No module needs itself, through whatever modules and however late it imports them."""
    assert circles(PACKAGE) == []


def test_a_directory_fits_a_screen():
    """The largest directory of the package can be seen at a glance."""
    for directory in (
        PACKAGE,
        *(path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__"),
    ):
        there = [path for path in directory.iterdir() if path.name != "__pycache__"]
        assert len(there) <= MOST_IN_A_DIRECTORY, directory


def test_what_is_private_to_a_front_end_is_named_in_its_package():
    """Nobody else imports, or names, a module of numba-cuda or of numba-cuda-mlir."""
    private = re.compile(
        r"numba\.cuda\.(?:core|cudadrv|codegen|compiler|dispatcher|target|memory_management)\b"
        r"|^ *(?:from|import) (?:numba|numba_cuda|numba_cuda_mlir|llvmlite)\b",
        re.MULTILINE,
    )
    named = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("_numba_cuda", "_numba_cuda_mlir")
        for match in private.finditer(path.read_text())
    ]
    assert named == []


def test_the_architecture_names_every_floor():
    """ARCHITECTURE.md tells what each module and package is for."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert [name for name in FLOORS if f"`{name}.py`" not in text and f"`{name}/`" not in text] == []


def test_importing_the_package_imports_neither_numba_nor_cuda():
    """`import numba_ptxlink`, status() and the errors cost no other package."""
    program = (
        "import sys, numba_ptxlink as pl; pl.status(); pl.LinkError; pl.Arch.of('sm_90');"
        "costly = {'numba', 'cuda', 'numpy', 'cffi', 'llvmlite'};"
        "print(sorted(costly & {name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_public_name_is_there():
    """Each name of `__all__` can be had, has a docstring, and shows up in dir()."""
    for name in pl.__all__:
        assert getattr(pl, name).__doc__, name
        assert name in dir(pl)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pl.nothing  # noqa: B018


def test_the_version_is_the_packages():
    """`__version__` is what the installed distribution says."""
    from importlib.metadata import version

    assert pl.__version__ == version("numba-ptxlink")
