"""
Programs of other projects, compiled and linked for a stand-in device: by stock Numba, and by the plugin.

Each run is a process of its own in an environment that the test makes of pinned packages and this checkout.
The environments take about 3 GB and are kept in ~/.cache/numba-ptxlink-thirdparty, or in the folder that
PTXLINK_THIRDPARTY_DIR names.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cubins
import environments
import processes
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

HERE = Path(__file__).resolve().parent


# The packages that each module of programs needs, and what else its name says.
SUITES = {
    "cooperative": "cccl",
    "algorithms": "cccl",
    "algorithms with numba-cuda-mlir": "cccl-mlir",
    "mathdx": "nvmath",
    "strings": "compilers",
    "assembly": "compilers",
}


@dataclass
class Runs:
    """Results of a suite: the folders of the cubins, and the outcomes by their case."""

    folders: tuple[Path, Path]
    linkers: tuple[str, str]
    stock: dict[str, dict[str, Any]]
    plugin: dict[str, dict[str, Any]]

    def linked(self) -> list[str]:
        """Return the cases that both linked."""
        both = (self.stock, self.plugin)
        return [name for name in self.stock if all(run[name]["outcome"] == "linked" for run in both)]


def execute(python: Path, shared: Path, active: str, *arguments: str) -> None:
    """Run the stand-in in the environment of *python*, with the plugin or without."""
    variables = {
        "CUDA_CACHE_DISABLE": "1",
        "NUMBA_PTXLINK": active,
        "NUMBA_PTXLINK_CACHE": "0",
        "PYTHONWARNINGS": "ignore",
        # Stock inlines nothing out of PTX.
        "NUMBA_PTXLINK_INLINE": "none",
        "STANDIN_DRIVER": str(environments.driver()),
        "STANDIN_SHARED": str(shared),
    }
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON"))
    }
    processes.run(python, str(HERE / "standin.py"), *arguments, env=inherited | variables)


@pytest.fixture(scope="module", params=SUITES)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the results of a suite's programs in both runs."""
    name = request.param.split()[0]
    programs = str(HERE / "programs" / f"{name}.py")
    folder = tmp_path_factory.mktemp(name)
    stock, plugin, shared = folder / "stock", folder / "plugin", folder / "shared"
    with contextlib.ExitStack() as stack:
        try:
            environments.driver()
            python = stack.enter_context(environments.environment(SUITES[request.param]))
        except environments.Unavailable as reason:
            pytest.skip(f"no environment for {name}: {reason}")
        if name == "assembly":
            execute(python, shared, "0", "prepare", str(shared), programs)
        execute(python, shared, "0", "run", str(stock), programs)
        execute(python, shared, "1", "run", str(plugin), programs)
    outcomes = [json.loads((folder / "outcomes.json").read_text()) for folder in (stock, plugin)]
    return Runs(
        (stock, plugin),
        (outcomes[0]["linker"], outcomes[1]["linker"]),
        outcomes[0]["cases"],
        outcomes[1]["cases"],
    )


def test_nothing_that_stock_links_is_refused(runs: Runs) -> None:
    """Every program of others that stock builds and links is built and linked with the plugin's linker."""
    assert ("_Linker", "PtxLinker") == runs.linkers
    all_linked = dict.fromkeys(runs.stock, "linked")
    assert all_linked == {name: case["outcome"] for name, case in runs.stock.items()}
    assert all_linked == {name: case["outcome"] for name, case in runs.plugin.items()}


def test_the_machine_code_is_equal_or_explained(runs: Runs) -> None:
    """Each cubin holds stock's machine code, or differs by a rule that is checked for that cubin."""
    rules = {name: explain(runs, name) for name in runs.linked()}
    assert {} == {name: runs.stock[name]["stem"] for name, rule in rules.items() if not rule}


def explain(runs: Runs, name: str) -> str:
    """
    Return the rule by which the machine code of a case equals that of stock or differs, "" if none holds.

    Beside those of `cubins.explain`:

    - "without LTO": nothing is linked, so the plugin compiles without LTO; stock without LTO is the same.
    - "whole program": a PTX that is alone is assembled as `ptxas` does it, not as one of several inputs.
    """
    case = runs.stock[name]
    stock, plugin = (folder / f"{case['stem']}.cubin" for folder in runs.folders)
    if rule := cubins.explain(stock, plugin):
        return rule
    alone = stock.with_suffix(".without_lto.cubin")
    if alone.exists() and cubins.explain(alone, plugin):
        return "without LTO"
    if "ptx" in case and cubins.explain(cubins.assembled(Path(case["ptx"]), case["arch"], stock), plugin):
        return "whole program"
    return ""
