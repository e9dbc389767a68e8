"""
Programs of others, compiled and linked for a stand-in device: once by stock Numba, once by the plugin.

Each run is a process of its own in an environment that the test makes of pinned packages and this checkout.
The environments take about 3 GB and are kept in ~/.cache/numba-ptxlink-thirdparty, or in the folder that
NUMBA_PTXLINK_THIRDPARTY_DIR names.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cubins
import environments
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.long]

HERE = Path(__file__).resolve().parent


class Suite(NamedTuple):
    """
    A module of programs.

    Args:
        environment: The name of the packages that it needs.
        shared: Whether all runs start from files that `prepare` makes.
    """

    environment: str
    shared: bool = False


SUITES = {
    "cooperative": Suite("cccl"),
    "algorithms": Suite("cccl"),
    "mathdx": Suite("nvmath"),
    "strings": Suite("compilers"),
    "assembly": Suite("compilers", shared=True),
}


@dataclass
class Runs:
    """What became of the cases of a suite: where the cubins lie, and the outcomes by their case."""

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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON"))}
    done = subprocess.run(
        [str(python), str(HERE / "standin.py"), *arguments],
        env=kept | variables,
        check=False,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr[-4000:]


@pytest.fixture(scope="module", params=SUITES)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return what became of a suite's programs in both runs."""
    name, suite = request.param, SUITES[request.param]
    programs = str(HERE / "programs" / f"{name}.py")
    folder = tmp_path_factory.mktemp(name)
    stock, plugin, shared = folder / "stock", folder / "plugin", folder / "shared"
    with contextlib.ExitStack() as stack:
        try:
            environments.driver()
            python = stack.enter_context(environments.environment(suite.environment))
        except environments.Unavailable as reason:
            pytest.skip(f"no environment for {name}: {reason}")
        if suite.shared:
            execute(python, shared, "0", "prepare", str(shared), programs)
        execute(python, shared, "0", "run", str(stock), programs)
        execute(python, shared, "1", "run", str(plugin), programs)
        if list(stock.glob("*.inputs")):
            execute(python, shared, "1", "relink", str(stock), str(plugin))
    outcomes = [json.loads((each / "outcomes.json").read_text()) for each in (stock, plugin)]
    return Runs(
        (stock, plugin),
        (outcomes[0]["linker"], outcomes[1]["linker"]),
        outcomes[0]["cases"],
        outcomes[1]["cases"],
    )


def test_nothing_that_stock_links_is_refused(
    runs: Runs, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    """Every program of others that stock builds and links is built and linked with the plugin's linker."""
    assert ("_Linker", "PtxLinker") == runs.linkers
    tell(_times(request.node.callspec.id, runs))
    all_linked = dict.fromkeys(runs.stock, "linked")
    assert all_linked == {name: case["outcome"] for name, case in runs.stock.items()}
    assert all_linked == {name: case["outcome"] for name, case in runs.plugin.items()}


def test_the_machine_code_is_equal_or_explained(
    runs: Runs, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    """Each cubin holds stock's machine code, or differs by a rule that is checked for that cubin."""
    rules = {name: explain(runs, name) for name in runs.linked()}
    counts = ", ".join(f"{count} {rule}" for rule, count in Counter(rules.values()).most_common())
    tell(f"{request.node.callspec.id}: {counts}")
    assert {} == {name: runs.stock[name]["stem"] for name, rule in rules.items() if not rule}


def explain(runs: Runs, name: str) -> str:
    """
    Return the rule by which the machine code of a case is stock's or differs, "" where none holds.

    Beside those of `cubins.explain`:

    - "without LTO": nothing is linked, so the plugin compiles without LTO; stock without LTO is the same.
    - "whole program": a PTX that is alone is assembled as `ptxas` does it, not as one of several inputs.
    - "operators of its own": a file to link was made of a Python operator, which the plugin compiles with a
      wrapper of its own for the C ABI; linked with stock's files, its kernel has stock's code.
    """
    case = runs.stock[name]
    stock, plugin = (folder / f"{case['stem']}.cubin" for folder in runs.folders)
    if rule := cubins.explain(stock, plugin):
        return rule
    alone, relinked = stock.with_suffix(".without_lto.cubin"), stock.with_suffix(".relinked")
    if alone.exists() and cubins.explain(alone, plugin):
        return "without LTO"
    if "ptx" in case and cubins.explain(cubins.assembled(Path(case["ptx"]), case["arch"], stock), plugin):
        return "whole program"
    if relinked.exists() and cubins.explain(stock, relinked):
        return "operators of its own"
    return ""


def _times(name: str, runs: Runs) -> str:
    seconds = [[run[case].get("seconds", 0.0) for case in runs.linked()] for run in (runs.stock, runs.plugin)]
    first, total = ([values[0] if values else 0.0 for values in seconds], [sum(each) for each in seconds])
    return (
        f"{name}: first link {first[0]:.2f} / {first[1]:.2f} s, "
        f"{len(seconds[0])} links {total[0]:.1f} / {total[1]:.1f} s"
    )
