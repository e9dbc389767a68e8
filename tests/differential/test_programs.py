"""Programs compiled by stock numba-cuda and by the plugin: outcomes, names, and entries of the cache."""

from __future__ import annotations

from types import SimpleNamespace

import cases
import driver
import generator
import pytest
import rules
from driver import Way

pytest.importorskip("numba.cuda")

SIZES = (
    pytest.param(30, marks=pytest.mark.slow),
    pytest.param(3000, marks=[pytest.mark.slow, pytest.mark.long]),
)


@pytest.fixture(scope="module", params=SIZES)
def compiled(request, tmp_path_factory):
    """Compile the cases and many random programs in four ways; return the results, and the comparison."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "programs").mkdir()
    programs = [
        *cases.write(folder / "programs"),
        *generator.write(folder / "programs", range(request.param)),
    ]
    cache = str(folder / "cache")
    stock, cold = driver.run_all(
        [Way("stock", plugin=False), Way("cold", plugin=True, cache=cache, hash_seed=1, order=1)],
        programs,
        folder,
    )
    warm = driver.run(Way("warm", plugin=True, cache=cache, hash_seed=2, order=2), programs, folder)
    # Without a cache all is compiled again, so it is a sixth of them.
    bare = driver.run(Way("bare", plugin=True, hash_seed=3, order=3), programs[::6], folder)
    return SimpleNamespace(
        stock=stock,
        cold=cold,
        warm=warm,
        bare=bare,
        count=len(programs),
        differences=rules.compare(stock, cold),
    )


def first_differences(differences: list[str]) -> str:
    """Return the first of many differences."""
    return "\n".join([f"{len(differences)} differences", *differences[:20]])


def test_both_compiled_all_programs(compiled):
    """Stock runs without the plugin and the plugin's processes with it, and most programs compile in both."""
    for name, active in (("stock", False), ("cold", True), ("warm", True), ("bare", True)):
        results = getattr(compiled, name)
        assert len(results) >= compiled.count // 6
        assert {active} == {result["active"] for result in results.values()}
    fine = [
        result for result in compiled.stock.values() if all("error" not in one for one in result["launches"])
    ]
    assert len(fine) > 0.8 * compiled.count


def test_the_plugin_does_as_stock(compiled):
    """Errors, names of kernels and entry names equal those of stock, unless a rule allows a difference."""
    assert not compiled.differences, first_differences(compiled.differences)


def test_without_a_cache_it_does_as_stock(compiled):
    """Names that another process would find are not made then."""
    differences = rules.compare(compiled.stock, compiled.bare)
    assert not differences, first_differences(differences)


def test_another_process_compiles_the_same(compiled):
    """Out of the cache, in another order and with another hash seed, the code is the same."""
    differences = rules.same(compiled.cold, compiled.warm)
    assert not differences, first_differences(differences)


def test_another_process_finds_most(compiled):
    """The next process finds nine of ten results of the first; the rest depends on an order in Numba."""
    hits, misses = driver.hits(compiled.warm)
    assert hits > compiled.count
    assert 0.9 <= hits / (hits + misses)


def test_generated_programs_are_the_same_everywhere():
    """A seed has the same program, whichever were generated before."""
    first = [generator.program(seed) for seed in range(20)]
    assert first == [generator.program(seed) for seed in reversed(range(20))][::-1]
    assert len(set(first)) == 20
