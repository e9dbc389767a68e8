"""The files that are given to tools, and what a full disk does to them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import host_compiler, nvdisasm, ptxas

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
CURE = "let TMPDIR name a directory of another disk"


def program(path: Path, script: str) -> str:
    """Write a shell script as the program *path*."""
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
    path.chmod(0o755)
    return str(path)


def fill_the_disk(monkeypatch):
    """Let each disk say that it has 4 KiB left."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))


def test_a_file_that_does_not_fit_is_told(monkeypatch):
    """Neither PTX nor host code that could not be written is given to a compiler."""

    def write(path, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", write)
    message = f"could not be written or read: No space left on device; .*{CURE}"
    with pytest.raises(pl.AssembleError, match=message):
        ptxas.compile_ptx("ptxas", PTX, [])
    with pytest.raises(pl.ExportError, match=message):
        host_compiler.compile_object("int x;", "x.cpp", {}, [])
    with pytest.raises(pl.ExportError, match=message):
        host_compiler.archive("x.o", b"code")


def test_a_file_that_is_written_in_part_is_told(monkeypatch):
    """The size is compared where the system reports no error."""
    monkeypatch.setattr(Path, "write_bytes", lambda path, _: path.touch())
    with pytest.raises(pl.AssembleError, match=f"No space left on device; .*{CURE}"):
        ptxas.compile_ptx("ptxas", PTX, [])


def test_no_folder_at_all_is_told(monkeypatch):
    """Where no temporary folder can be made, the message says how to name another."""

    def refuse(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(nvdisasm.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(pl.AssembleError, match=f"No usable temporary directory found; .*{CURE}"):
        ptxas.compile_ptx("ptxas", PTX, [])


def test_a_compiler_that_fails_on_a_full_disk(monkeypatch, tmp_path):
    """What it says of the code is followed by what is left on the disk, in place of a cure for the code."""
    path = program(tmp_path / "nvcc", "echo Missing .version directive; exit 1")
    monkeypatch.setenv("CUDACXX", path)
    monkeypatch.setenv("AR", path)
    attempts = [
        (pl.AssembleError, lambda: ptxas.compile_ptx(path, PTX, []), "Correct the PTX"),
        (pl.ExportError, lambda: host_compiler.archive("x.o", b"code"), "install binutils"),
    ]
    for error, attempt, usual in attempts:
        with pytest.raises(error, match=usual):
            attempt()
    fill_the_disk(monkeypatch)
    monkeypatch.setattr(host_compiler, "_compilers", lambda: iter([host_compiler._Compiler((path,), True)]))
    attempts.append((pl.ExportError, lambda: host_compiler.compile_object("", "x.cpp", {}, []), "Name one"))
    for error, attempt, usual in attempts:
        with pytest.raises(error, match=rf"directive(.|\n)*has 4 KiB left, .*{CURE}") as caught:
            attempt()
        assert usual not in str(caught.value)


def test_a_compiler_that_writes_nothing_has_failed(monkeypatch, tmp_path):
    """An empty cubin or object is no result, though the compiler says that it succeeded."""
    path = program(tmp_path / "nvcc", ': > "$last"')
    with pytest.raises(pl.AssembleError, match=r"wrote no whole cubin\. Reinstall"):
        ptxas.compile_ptx(path, PTX, [])
    fill_the_disk(monkeypatch)
    with pytest.raises(pl.AssembleError, match=r"wrote no whole cubin\. .* has 4 KiB left"):
        ptxas.compile_ptx(path, PTX, [])
    monkeypatch.setattr(host_compiler, "_compilers", lambda: iter([host_compiler._Compiler((path,), False)]))
    with pytest.raises(pl.ExportError, match=r"x\.cpp.o is not a whole ELF file(.|\n)* has 4 KiB left"):
        host_compiler.compile_object("int x;", "x.cpp", {}, [])
