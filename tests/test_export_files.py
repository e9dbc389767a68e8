"""Files of an export in its folder, and `link` with files that do not belong together."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

import numba_ptxlink as pl

KERNEL = '#include "udfs.h"\nextern "C" __global__ void k(int* p) { *p = twice(*p); }\n'


def export(folder: Path, *, body: str = "2 * x", **options) -> pl.Export:
    """Export `twice` from a file beside *folder*."""
    path = folder.parent / "udfs.py"
    path.write_text(
        f"from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return {body}\n"
    )
    options = {"arch": "sm_75", "emit": ["ptx"], **options}
    return pl.export(path, folder, **options)


def names(folder: Path) -> list[str]:
    """Return the names in *folder*, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files in *folder*."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def exported_folder(tmp_path_factory):
    """Return a folder with a Python file and, in `out`, its export for two architectures."""
    folder = tmp_path_factory.mktemp("made")
    export(folder / "out", arch=["sm_75", "sm_90"], emit=["ptx", "cubin", "fatbin"])
    return folder


@pytest.fixture
def out(exported_folder, tmp_path):
    """Return a folder of the test's own with that export, beside the file."""
    shutil.copytree(exported_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


def test_files_that_are_no_longer_exported_are_deleted(out):
    """Architectures and kinds of the former export are deleted; files of others stay."""
    (out / "udfs.txt").write_text("mine")
    (out / "udfs.sm_90.sass").write_text("mine")
    (out / "other.sm_90.ptx").write_text("mine")
    export(out, arch="sm_90")
    other_files = ["other.sm_90.ptx", "udfs.sm_90.sass", "udfs.txt"]
    assert names(out) == sorted(["udfs.h", "udfs.json", "udfs.sm_90.ptx", *other_files])


def test_a_file_that_was_changed_stays(out):
    """A file of the former export that somebody replaced is left, and does not link."""
    (out / "udfs.sm_90.ptx").write_text("// mine\n" + (out / "udfs.sm_75.ptx").read_text())
    export(out)
    with pytest.raises(
        pl.LinkError, match=r"udfs.json, which does not list it, and may not match its header"
    ):
        pl.link(out / "udfs.sm_90.ptx", arch="sm_90")


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{",
        '{"format": 1, "name": "udfs", "functions": [], "artifacts": [], "header": {}}',
        json.dumps(
            {
                "format": 1,
                "name": "udfs",
                "functions": [],
                "header": {"file": "udfs.h", "sha256": ""},
                "artifacts": [{"file": "../precious", "sha256": ""}],
            }
        ),
    ],
)
def test_a_manifest_that_is_none_deletes_and_refuses_nothing(out, tmp_path, manifest):
    """A damaged or foreign `udfs.json` is not believed, by `link` nor by the next export."""
    path = out / "udfs.sm_75.ptx"
    (tmp_path / "precious").write_bytes(b"")
    (out / "udfs.json").write_text(manifest)
    path.write_text("// changed\n" + path.read_text())
    assert pl.link(path, arch="sm_90").cubin
    export(out, arch="sm_80")
    assert (tmp_path / "precious").exists()
    assert path.exists()


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_export_does_not_link(out, monkeypatch, after):
    """An error of writing leaves the former set, or files that its manifest disagrees with."""
    before, original, calls = contents(out), Path.replace, []

    def interrupted(path, target):
        calls.append(target)
        if len(calls) == after + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(pl.ExportError, match="could not be written: No space left on device; choose another"):
        export(out, body="3 * x", arch=["sm_75", "sm_90"], emit=["ptx", "cubin"])
    remaining = contents(out)
    assert remaining.keys() == before.keys()
    assert remaining["udfs.json"] == before["udfs.json"]
    changed = {name for name in remaining if remaining[name] != before[name]}
    assert bool(changed) is (after > 0)
    for name in changed - {"udfs.h"}:
        with pytest.raises(pl.LinkError, match="lists it with another content"):
            pl.link(KERNEL, out / name, arch="sm_90", include_dirs=[out])


def test_the_header_of_another_export_is_refused(out, tmp_path):
    """The header that the sources include, directly or not, is the one of the artifact's manifest."""
    old = tmp_path / "old"
    shutil.copytree(out, old)
    (out / "kernel.cuh").write_text('#include "udfs.h"\n')
    export(out, body="3 * x + 1")
    artifact = out / "udfs.sm_75.ptx"
    text = (old / "udfs.h").read_text().replace("int32_t twice", "int64_t twice")
    (old / "udfs.h").write_text(text)
    through = KERNEL.replace("udfs.h", "kernel.cuh")
    (old / "kernel.cuh").write_text('#include "udfs.h"\n')
    for source in (KERNEL, through):
        assert pl.link(source, artifact, arch="sm_90", include_dirs=[out, old]).cubin
        with pytest.raises(pl.LinkError, match=r"old/udfs\.h is the header of another export than the"):
            pl.link(source, artifact, arch="sm_90", include_dirs=[old])
    with pytest.raises(pl.LinkError, match=r"udfs\.h is the header of another export"):
        pl.link(KERNEL, artifact, arch="sm_90", headers={"udfs.h": text})


def test_what_did_not_change_is_not_written(tmp_path):
    """A comment above a function moves lines in the manifest, which is always written, and nothing else."""
    out, long_ago = tmp_path / "out", 10**9
    kinds = {"arch": "sm_75", "emit": ["ptx", "ltoir", "cubin", "fatbin"]}
    first = export(out, body="2 // x", **kinds)
    before = contents(out)
    for path in out.iterdir():
        os.utime(path, ns=(long_ago, long_ago))
    (tmp_path / "udfs.py").write_text("# moved\n\n" + (tmp_path / "udfs.py").read_text())
    again = pl.export(tmp_path / "udfs.py", out, **kinds)
    changed = {path.name for path in out.iterdir() if path.stat().st_mtime_ns != long_ago}
    assert changed == {"udfs.json"}
    assert before == {**contents(out), "udfs.json": before["udfs.json"]}
    assert "udfs.py:" not in again.header.read_text()
    assert '"udfs.py:5"' in again.manifest.read_text()
    os.utime(first.manifest, ns=(long_ago, long_ago))
    pl.export(tmp_path / "udfs.py", out, **kinds)
    assert first.manifest.stat().st_mtime_ns != long_ago


def test_an_export_does_not_replace_the_header_of_its_structs(tmp_path):
    """The header that defines a struct stays, and the export's has another name: it would include itself."""
    text, header, path = "struct Pair { float a, b; };\n", tmp_path / "pair.h", tmp_path / "pair.py"
    header.write_text(text)
    path.write_text(
        "import numpy as np\nfrom numba_ptxlink import udf\nPair = np.dtype([('a', 'f4'), ('b', 'f4')])\n\n"
        "@udf('float32(Pair)', structs={Pair: 'Pair'}, include='pair.h')\ndef f(p):\n    return p.a\n"
    )
    with pytest.raises(pl.AbiError, match=r"pair\.h would hide the one of its structs .* by name="):
        pl.export(path, emit="ptx")
    with pytest.raises(pl.ExportError, match=r"pair\.h would replace"):
        pl.export(path, tmp_path, emit="ptx", name="other", depfile=header)
    assert text == header.read_text()
