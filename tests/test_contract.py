"""
What this package relies on in the front ends is what its wrappers were written against.

Run as a script with the name of a front end, it adds the digests of the release in use.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink._front_end import registry, substitution

HERE = Path(__file__).parent
MOST_ROWS = {"numba-cuda": 30, "numba-cuda-mlir": 22}
FRONT_ENDS = [front_end.name for front_end in registry.front_ends()]


def digests_file(name: str) -> Path:
    """Return the file with the digests of the sources of what is replaced in a front end, by release."""
    return HERE / name.replace("-", "_") / "sources.json"


def place_of(row: substitution.Substitution) -> str:
    """Return where a row replaces something."""
    return f"{row.module}:{row.path}"


def sources(name: str) -> dict[str, str]:
    """Return a digest of the source of everything that is replaced, by its place; "" where it is gone."""
    pl.disable()
    found = {}
    for row in registry.get(name).table():
        try:
            found[place_of(row)] = digest(row.owner().__dict__[row.attribute])
        except (ImportError, AttributeError, KeyError):
            found[place_of(row)] = ""
    return found


def moved(name: str, known: dict[str, dict[str, str]], version: str, found: dict[str, str]) -> list[str]:
    """Return what differs from *version*'s digests, or from the newest known ones where it has none."""
    newest = max(known, key=lambda release: tuple(map(int, release.split("."))))
    then = known.get(version, known[newest])
    wrappers = {place_of(row): row.wrap for row in registry.get(name).table()}
    return [
        f"{place} ({'moved' if found.get(place) else 'is gone'}; "
        f"wrapped by {wrappers[place].__module__ if place in wrappers else 'nothing any more'})"
        for place in sorted({*found, *then})
        if found.get(place) != then.get(place)
    ]


def digest(original: object) -> str:
    """Return a digest of the source of a function, class, property or class method."""
    function = getattr(original, "fget", getattr(original, "__func__", original))
    if inspect.isclass(function) and not sys.modules[function.__module__].__file__.endswith(".py"):
        return f"{function.__module__}.{function.__qualname__}"  # compiled
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_nothing_that_is_replaced_has_moved(name):
    """Each replaced function has the source that its wrapper was written against, for this release."""
    front_end = registry.get(name)
    if not registry.installed(front_end):
        pytest.skip(f"{name} is not installed")
    known = json.loads(digests_file(name).read_text())
    version = metadata.version(name)
    # In a process of its own, where no test has put anything in the front end's place.
    command = [sys.executable, __file__, name, "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert moved(name, known, version, found) == []
    assert version in known, f"{name} {version} moved nothing; run {Path(__file__).name} {name} to add it"


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_every_release_that_is_told_is_served(name):
    """There are digests for no release but those that the plugin serves, and nothing is gone in any."""
    front_end, known = registry.get(name), json.loads(digests_file(name).read_text())
    served = registry.get(name).supported
    assert [version for version in known if version not in served] == []
    rows = sorted(map(place_of, front_end.table()))
    assert dict.fromkeys(known, rows) == {
        version: sorted(place for place, kept in places.items() if kept) for version, places in known.items()
    }


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_table_has_each_row_once_with_its_reason(name):
    """No attribute is replaced twice, and each reason is a sentence."""
    front_end = registry.get(name)
    places = [place_of(row) for row in front_end.table()]
    assert len(places) == len(set(places))
    assert [row.path for row in front_end.table() if not row.reason.endswith(".")] == []
    assert {row.purpose for row in front_end.table()} <= {*substitution.PURPOSES}
    assert len(places) <= MOST_ROWS[name]
    assert front_end.driver in {row.module for row in front_end.table()}


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_table_imports_no_compiler(name):
    """The import hook reads the table before anything of the front end is there."""
    program = (
        f"import sys, numba_ptxlink._front_end.registry as registry; registry.get({name!r}).table()\n"
        "compilers = {'numba', 'numba_cuda', 'numba_cuda_mlir', 'cuda', 'llvmlite'}\n"
        "print(sorted(compilers & {m.split('.')[0] for m in sys.modules}))"
    )
    command = [sys.executable, "-c", program]
    # numba-cuda's own .pth file imports its redirector, which is no import of numba.
    done = subprocess.run(command, capture_output=True, text=True, check=True)
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


if __name__ == "__main__" and sys.argv[2:] == ["show"]:
    print(json.dumps(sources(sys.argv[1])))  # noqa: T201 - for the test
elif __name__ == "__main__":
    path = digests_file(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else {}
    known[metadata.version(sys.argv[1])] = sources(sys.argv[1])
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
