"""The shape of the package: which way imports point, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import numba_ptxlink as pl

PACKAGE = Path(pl.__file__).parent
# From the bottom up; a module imports from layers below its own, or from its own where the order says so.
LAYERS = (
    ("errors", "_locks", "_describe"),
    ("_config", "_target", "_cnames", "_build_id", "_includes"),
    ("_native", "_options", "_ptx", "_llvm", "_inputs", "_elf", "_ltoir", "_merge", "_isa"),
    ("_compression", "_containers"),
    ("_keys", "_names", "_seal", "_flight", "_deadline", "_redis", "_eviction", "_store"),
    ("cache", "_cachetools"),
    ("assembler", "_nvjitlink", "_pynvjitlink", "_nvrtc", "_fatbin"),
    ("_symbol_tables", "_symbols", "_checks", "_explain", "_backends", "_sources"),
    ("_nvvm", "_numba_cache", "_numba_fixes"),
    ("_cmodel", "abi", "_header", "_numba", "_convert", "_flat", "_wrapper"),
    ("_udf", "_externs", "_build"),
    ("exporter",),
    ("linker",),
    ("_numba_linker",),
    ("_door",),
    ("_plugin",),
    ("_toolchain", "inspection", "doctor", "_report"),
    ("cli",),
)
ORDER = [module for layer in LAYERS for module in layer]


def imports(path: Path) -> set[str]:
    """Return the sibling modules that the module at *path* imports at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module:
                found.add(node.module.partition(".")[0])
            else:
                found |= {alias.name for alias in node.names}
    return {name for name in found if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()}


def test_every_module_has_its_layer():
    """The table of layers lists every module."""
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert modules | {"_native"} == set(ORDER)


def test_the_architecture_names_every_module():
    """ARCHITECTURE.md tells what each module is for."""
    text = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text()
    assert [name for name in ORDER if f"`{name}.py`" not in text and f"`{name}/`" not in text] == []


@pytest.mark.parametrize("module", [name for name in ORDER if name != "_native"])
def test_imports_point_downwards(module):
    """A module imports only from layers below its own, or from modules named before it in its own."""
    below = set(ORDER[: ORDER.index(module)])
    assert imports(PACKAGE / f"{module}.py") <= below


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
