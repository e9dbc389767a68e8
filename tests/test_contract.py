"""
What this package relies on in the front ends is what its wrappers were written against.

Run as a script with the name of a front end, it adds the digests of the release in use.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink._front_end import patch, registry, sources
from numba_ptxlink._front_end.activation import Activation

HERE = Path(__file__).parent
MOST_ROWS = {"numba-cuda": 25, "numba-cuda-mlir": 26}
FRONT_ENDS = [front_end.name for front_end in registry.front_ends()]


def digests_file(name: str) -> Path:
    """Return the file with the digests of the sources of what is used in a front end, by release."""
    package = f"_{name.replace('-', '_')}"
    there = Path(pl.__file__).parent / package / "sources.json"
    return there if there.exists() else HERE / package[1:] / "sources.json"


def places(name: str) -> list[str]:
    """Return the places of what is replaced in a front end, and of what is called where it says so."""
    front_end = registry.get(name)
    own = getattr(front_end, "contract", lambda: [row.target for row in front_end.table()])
    return list(own())


def found(name: str) -> dict[str, str]:
    """Return the digests of the release in use."""
    site = sources.site_folder(registry.get(name))
    return {place: sources.digest(place, site) for place in places(name)}


def moved(name: str, known: dict[str, dict[str, str]], version: str, now: dict[str, str]) -> list[str]:
    """Return what differs from *version*'s digests, or from the newest known ones where it has none."""
    newest = max(known, key=lambda release: tuple(map(int, release.split("."))))
    then = known.get(version, known[newest])
    wrappers = {row.target: row.wrap for row in registry.get(name).table()}
    return [
        f"{place} ({'moved' if now.get(place) else 'is gone'}; "
        f"wrapped by {wrappers[place].__module__ if place in wrappers else 'nothing'})"
        for place in sorted({*now, *then})
        if now.get(place) != then.get(place)
    ]


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_nothing_that_is_replaced_has_moved(name):
    """Each replaced function has the source that its wrapper was written against, for this release."""
    front_end = registry.get(name)
    if not registry.is_installed(front_end):
        pytest.skip(f"{name} is not installed")
    known = json.loads(digests_file(name).read_text())
    version = metadata.version(name)
    assert moved(name, known, version, found(name)) == []
    assert version in known, f"{name} {version} moved nothing; run {Path(__file__).name} {name} to add it"


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_every_release_that_is_told_is_served(name):
    """There are digests for no release but those that the plugin serves, and nothing is gone in any."""
    known = json.loads(digests_file(name).read_text())
    served = registry.get(name).supported
    assert [version for version in known if version not in served] == []
    rows = sorted(places(name))
    assert dict.fromkeys(known, rows) == {
        version: sorted(place for place, kept in each.items() if kept) for version, each in known.items()
    }


def test_a_release_that_nobody_tried_serves_while_its_functions_are_known(monkeypatch):
    """The text of what is replaced or called tells it, and `status()` says so; the first change is named."""
    front_end = registry.get("numba-cuda-mlir")
    if not registry.is_installed(front_end):
        pytest.skip("numba-cuda-mlir is not installed")
    monkeypatch.setattr(front_end, "remark", "")
    monkeypatch.setattr(metadata, "version", lambda _: "0.7.0")
    assert front_end.unsupported_reason() is None
    activation = Activation(front_end.name)
    activation.active = True
    activation.record_decision("import hook", "it is installed")
    told = "it is installed; 0.7.0 was not tested, but all functions that are patched or called are unchanged"
    assert told == activation.reason
    monkeypatch.setattr(sources, "digest", lambda place, _: place.partition("set_error_code")[1])
    message = r"0\.7\.0 is not supported: numba_cuda_mlir\.[\w.:]+ has changed; install"
    assert re.match(f"numba-cuda-mlir {message}", front_end.unsupported_reason())


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_table_has_each_row_once_with_its_reason(name):
    """No attribute is replaced twice, and each reason is a sentence."""
    front_end = registry.get(name)
    rows = [row.target for row in front_end.table()]
    assert len(rows) == len(set(rows))
    assert [row.path for row in front_end.table() if not row.reason.endswith(".")] == []
    assert {row.purpose for row in front_end.table()} <= {*patch.PURPOSES}
    assert len(rows) <= MOST_ROWS[name]
    assert front_end.trigger_module in {row.module for row in front_end.table()}


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_table_imports_no_compiler(name):
    """The import hook reads the table before anything of the front end is there."""
    # Beside the helpers, where the script does not look.
    import processes

    program = (
        f"import sys, numba_ptxlink._front_end.registry as registry; registry.get({name!r}).table()\n"
        "compilers = {'numba', 'numba_cuda', 'numba_cuda_mlir', 'cuda', 'llvmlite'}\n"
        "print(sorted(compilers & {m.split('.')[0] for m in sys.modules}))"
    )
    command = [sys.executable, "-c", program]
    # numba-cuda's own .pth file imports its redirector, which is no import of numba.
    done = processes.run(*command)
    assert done.stdout.strip() == "[]"


def test_one_range_of_releases_is_stated():
    """The extras in pyproject.toml and the checks at run time allow the same releases of the front ends."""
    text = (HERE.parent / "pyproject.toml").read_text()
    for front_end in registry.front_ends():
        assert [str(front_end.supported)] == re.findall(rf'"{front_end.name}([<>=!][^"]*)"', text)


def test_the_page_shows_the_tables():
    """`docs/reference/replaced.md` is what `docs/reference/replaced.py` makes of the tables."""
    page = HERE.parent / "docs" / "reference" / "replaced.py"
    if not page.exists():
        pytest.skip("there is no documentation beside these tests")
    scope: dict[str, object] = {"__file__": str(page), "__name__": "replaced"}
    exec(compile(page.read_text(), str(page), "exec"), scope)  # noqa: S102 - our own script
    assert page.with_suffix(".md").read_text() == scope["page"]()


if __name__ == "__main__":
    path = digests_file(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else {}
    known[metadata.version(sys.argv[1])] = found(sys.argv[1])
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
