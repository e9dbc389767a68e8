"""Contents of a release: one version, links that work, and the texts of licences."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import numba_ptxlink as pl

ROOT = Path(__file__).parents[1]


def test_the_version_is_stated_once():
    """The package's metadata has the version of `_version.py`, and no other file states it."""
    assert metadata.version("numba-ptxlink") == pl.__version__
    version_text = re.compile(rf'version\W+"?{re.escape(pl.__version__)}\b', re.IGNORECASE)
    files = [
        ROOT / "pyproject.toml",
        ROOT / "CMakeLists.txt",
        *(ROOT / "docs").glob("*"),
        *(ROOT / "conda").glob("*"),
    ]
    files += (ROOT / "numba_ptxlink").rglob("*.cmake")
    assert [] == [path.name for path in files if path.is_file() and version_text.search(path.read_text())]


def test_the_description_has_no_relative_link():
    """Links of the description on the index lead to the web, or within the page."""
    text = str(
        metadata.metadata("numba-ptxlink")["Description"] or metadata.metadata("numba-ptxlink").get_payload()
    )
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 5
    assert [] == [link for link in links if not link.startswith(("https://", "#"))]


def test_the_readme_links_to_files_that_are_there():
    """Each relative link of README.md is a file of the repository, which the index's links point at."""
    for page in ("README.md", "MIGRATION.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md"):
        links = re.findall(r"\]\((?!https?://|#)([^)\s#]+)", (ROOT / page).read_text())
        assert [] == [link for link in links if not (ROOT / link).exists()], page


def test_the_licence_of_what_is_linked_in_is_installed():
    """The metadata has NVIDIA's text beside NOTICE, which names it, where the package is a built one."""
    files = metadata.files("numba-ptxlink") or []
    licences = {file.name: file for file in files if file.parent.name == "licenses"}
    assert {"LICENSE", "NOTICE", "NVIDIA-CUDA-EULA.txt"} <= set(licences)
    assert "NVIDIA-CUDA-EULA.txt" in (ROOT / "NOTICE").read_text()
    assert "Attachment A" in licences["NVIDIA-CUDA-EULA.txt"].read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_source_distribution_has_what_it_is_built_of(tmp_path):
    """The archive holds sources, tests and documentation, and neither workplaces nor built files."""
    import tarfile

    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named build" in done.stderr:
        pytest.skip("build is not installed")
    assert 0 == done.returncode, done.stderr[-2000:]
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    required = {"CMakeLists.txt", "NOTICE", "docs/licence.md", "hook/numba_ptxlink.pth", "tests/conftest.py"}
    assert {*required, "benchmarks/programs/timing.py"} <= names
    assert [] == [name for name in names if re.search(r"\.(so|pyc|o|whl)$|(^|/)\.|^(build|dist)/", name)]
    paths = {*names, *(str(folder) for name in names for folder in Path(name).parents)}
    for page in (name for name in names if name.endswith(".md") and name.startswith("docs/")):
        links = re.findall(r"\]\((\.\./[^)\s#]+)", (ROOT / page).read_text())
        targets = [os.path.normpath(Path(page).parent / link) for link in links]
        assert [] == [target for target in targets if target not in paths], page


def interpreters() -> dict[int, Path]:
    """Return the Pythons of PATH and pyenv that can make environments and compile C, by minor version."""
    ask = (
        "import ensurepip, os, sys, sysconfig;"
        "assert os.path.exists(sysconfig.get_path('include') + '/Python.h');"
        "assert not sysconfig.get_config_var('Py_GIL_DISABLED'); print(sys.version_info.minor)"
    )
    interpreters_by_minor = {}
    for folder in (*map(Path, os.get_exec_path()), *Path("~/.pyenv/versions").expanduser().glob("3.*/bin")):
        for path in folder.glob("python3.[1-9][0-9]"):
            done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
            if not done.returncode:
                interpreters_by_minor.setdefault(int(done.stdout), path)
    return interpreters_by_minor


@pytest.mark.slow
def test_a_wheel_of_the_newest_python_serves_the_oldest(tmp_path):
    """A single wheel is for all Pythons, whichever built it."""
    pythons = interpreters()
    if len(pythons) < 2:
        pytest.skip(f"there are not two Pythons that compile C, but {[*map(str, pythons.values())]}")

    def run(minor: int, *arguments: object) -> str:
        folder = tmp_path / str(minor)
        if not folder.exists():
            subprocess.run([pythons[minor], "-m", "venv", folder], check=True)
        command = [folder / "bin" / "python", "-I", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr[-2000:]
        return done.stdout

    run(max(pythons), "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*-cp310-abi3-*.whl")
    modules = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    assert {"_nvptxcompiler.abi3.so", "libptxlink_checks.so"} == modules
    run(min(pythons), "-m", "pip", "install", "-q", wheel)
    version = run(min(pythons), "-c", "import numba_ptxlink as pl; print(pl.toolchain().nvptxcompiler[0])")
    assert re.fullmatch(r"\d+\n", version)
