"""
The sources that this package patches or calls in the front ends are those that its wrappers were written for.

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
    """Return the file with the digests of the used sources of a front end, by release."""
    package = f"_{name.replace('-', '_')}"
    installed = Path(pl.__file__).parent / package / "sources.json"
    return installed if installed.exists() else HERE / package[1:] / "sources.json"


def target_names(name: str) -> list[str]:
    """Return the names of all that is patched in a front end, and of all calls that its contract lists."""
    front_end = registry.get(name)
    list_targets = getattr(front_end, "contract", lambda: [row.target for row in front_end.table()])
    return list(list_targets())


def current_digests(name: str) -> dict[str, str]:
    """Return the digests of the release in use."""
    site = sources.site_folder(registry.get(name))
    return {target: sources.digest(target, site) for target in target_names(name)}


def moved(name: str, known: dict[str, dict[str, str]], version: str, current: dict[str, str]) -> list[str]:
    """Return the targets with other digests than in *version*, or else in the newest known release."""
    newest = max(known, key=lambda release: tuple(map(int, release.split("."))))
    expected = known.get(version, known[newest])
    wrappers = {row.target: row.wrap for row in registry.get(name).table()}
    return [
        f"{target} ({'moved' if current.get(target) else 'is gone'}; "
        f"wrapped by {wrappers[target].__module__ if target in wrappers else 'nothing'})"
        for target in sorted({*current, *expected})
        if current.get(target) != expected.get(target)
    ]


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_nothing_that_is_replaced_has_moved(name):
    """Each replaced function has the source that its wrapper was written against, for this release."""
    front_end = registry.get(name)
    if not registry.is_installed(front_end):
        pytest.skip(f"{name} is not installed")
    known = json.loads(digests_file(name).read_text())
    version = metadata.version(name)
    assert moved(name, known, version, current_digests(name)) == []
    assert version in known, f"{name} {version} moved nothing; run {Path(__file__).name} {name} to add it"


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_every_release_that_is_told_is_served(name):
    """There are digests for no release but those that the plugin serves, and nothing is gone in any."""
    known = json.loads(digests_file(name).read_text())
    served = registry.get(name).supported
    assert [version for version in known if version not in served] == []
    rows = sorted(target_names(name))
    assert dict.fromkeys(known, rows) == {
        version: sorted(target for target, digest in digests.items() if digest)
        for version, digests in known.items()
    }


def test_a_release_that_nobody_tried_serves_while_its_functions_are_known(monkeypatch):
    """Equal sources of all patched and called functions are enough; the first changed one is named."""
    front_end = registry.get("numba-cuda-mlir")
    if not registry.is_installed(front_end):
        pytest.skip("numba-cuda-mlir is not installed")
    monkeypatch.setattr(front_end, "remark", "")
    monkeypatch.setattr(metadata, "version", lambda _: "0.7.0")
    assert front_end.unsupported_reason() is None
    activation = Activation(front_end.name)
    activation.active = True
    activation.record_decision("import hook", "it is installed")
    reason = (
        "it is installed; 0.7.0 was not tested, but all functions that are patched or called are unchanged"
    )
    assert reason == activation.reason
    monkeypatch.setattr(sources, "digest", lambda target, _: target.partition("set_error_code")[1])
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
    """`docs/reference/replaced.md` is the output of `docs/reference/replaced.py` for the tables."""
    page = HERE.parent / "docs" / "reference" / "replaced.py"
    if not page.exists():
        pytest.skip("there is no documentation beside these tests")
    scope: dict[str, object] = {"__file__": str(page), "__name__": "replaced"}
    exec(compile(page.read_text(), str(page), "exec"), scope)  # noqa: S102 - our own script
    assert page.with_suffix(".md").read_text() == scope["page"]()


if __name__ == "__main__":
    path = digests_file(sys.argv[1])
    known = json.loads(path.read_text()) if path.exists() else {}
    known[metadata.version(sys.argv[1])] = current_digests(sys.argv[1])
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
