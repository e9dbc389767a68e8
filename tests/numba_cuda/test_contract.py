"""What this package relies on in numba-cuda is what its wrappers were written against."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numba_cuda
import pytest

from numba_ptxlink._front_end import substitution
from numba_ptxlink._numba_cuda import release
from numba_ptxlink._numba_cuda.patches.table import HOOKED, TABLE

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).with_name("sources.json")
"""Digests of the sources of what is replaced, by release; running this file adds the release in use."""


def sources() -> dict[str, str]:
    """Return a digest of the source of everything that is replaced, by its place; "" where it is gone."""
    found = {}
    for row in TABLE:
        try:
            found[f"{row.module}:{row.path}"] = digest(substitution.original_of(row))
        except (ImportError, AttributeError, KeyError):
            found[f"{row.module}:{row.path}"] = ""
    return found


def moved(known: dict[str, dict[str, str]], version: str, found: dict[str, str]) -> list[str]:
    """Return what differs from *version*'s digests, or from the newest known ones where it has none."""
    newest = max(known, key=lambda release: tuple(map(int, release.split("."))))
    then = known.get(version, known[newest])
    wrappers = {f"{row.module}:{row.path}": row.wrap for row in TABLE}
    return [
        f"{place} ({'moved' if found.get(place) else 'is gone'}; "
        f"wrapped by {wrappers[place].__module__ if place in wrappers else 'nothing any more'})"
        for place in sorted({*found, *then})
        if found.get(place) != then.get(place)
    ]


def digest(original: object) -> str:
    """Return a digest of the source of a function, class, property or class method."""
    function = getattr(original, "fget", getattr(original, "__func__", original))
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def test_nothing_that_is_replaced_has_moved():
    """Each replaced function has the source that its wrapper was written against, for this release."""
    known = json.loads(SOURCES.read_text())
    version = numba_cuda.__version__
    # In a process of its own, where no test has put anything in numba-cuda's place.
    done = subprocess.run([sys.executable, __file__, "show"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert moved(known, version, found) == []
    assert version in known, f"numba-cuda {version} moved nothing; run {Path(__file__).name} to add it"


def test_what_a_new_release_moves_is_named():
    """A release that is not known is compared with the newest that is; a difference has its wrapper."""
    places = [f"{row.module}:{row.path}" for row in TABLE[:2]]
    known = {"0.9.1": dict.fromkeys(places, "old"), "0.10.0": dict.fromkeys(places, "a")}
    assert moved(known, "0.10.1", dict.fromkeys(places, "a")) == []
    assert moved(known, "0.9.1", dict.fromkeys(places, "old")) == []
    found = moved(known, "0.11.0", {places[0]: "b", places[1]: ""})
    assert [f"{places[0]} (moved; wrapped by {TABLE[0].wrap.__module__})"] == [
        line for line in found if "moved" in line
    ]
    assert [line.partition(" (")[0] for line in found if "is gone" in line] == [places[1]]


def test_every_release_that_is_told_is_served():
    """There are digests for no release but those that the plugin serves."""
    assert [version for version in json.loads(SOURCES.read_text()) if version not in release.SUPPORTED] == []


def test_a_source_that_moves_is_told():
    """Another text of a function, or of a property's getter, is another digest."""

    def one():
        return 1

    class Holder:
        @property
        def other(self):
            return 2

        @classmethod
        def third(cls):
            return 3

    assert 3 == len({digest(one), digest(vars(Holder)["other"]), digest(vars(Holder)["third"])})
    assert digest(json.dumps) != digest(json.loads)


def test_the_table_has_each_row_once_with_its_reason():
    """No attribute is replaced twice, and each reason is a sentence."""
    places = [(row.module, row.path) for row in TABLE]
    assert len(places) == len(set(places))
    assert [row.path for row in TABLE if not row.reason.endswith(".")] == []
    assert {module for module, _ in places} == HOOKED


def test_the_table_imports_nothing_of_numba():
    """The import hook reads the table before anything of numba.cuda is there."""
    program = (
        "import sys, numba_ptxlink._numba_cuda.patches.table\n"
        "print(sorted({'numba', 'numba_cuda', 'cuda', 'llvmlite'} & {m.split('.')[0] for m in sys.modules}))"
    )
    command = [sys.executable, "-I", "-c", program]
    # numba-cuda's own .pth file imports its redirector, which is no import of numba.
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_shows_the_table():
    """`docs/replaced.md` is what `docs/replaced.py` makes of the table."""
    page = ROOT / "docs" / "replaced.py"
    if not page.exists():
        pytest.skip("there is no documentation beside these tests")
    scope: dict[str, object] = {"__file__": str(page), "__name__": "replaced"}
    exec(compile(page.read_text(), str(page), "exec"), scope)  # noqa: S102 - our own script
    assert page.with_suffix(".md").read_text() == scope["page"]()


if __name__ == "__main__" and sys.argv[1:] == ["show"]:
    print(json.dumps(sources()))  # noqa: T201 - for the test
elif __name__ == "__main__":
    known = json.loads(SOURCES.read_text()) if SOURCES.exists() else {}
    known[numba_cuda.__version__] = sources()
    SOURCES.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
