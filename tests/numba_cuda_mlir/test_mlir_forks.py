"""Compilations in forked children, where the threads of MLIR are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("numba_cuda_mlir.cuda")

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    from numba_cuda_mlir import cuda

    def compiled(number):
        return cuda.compile_ptx(lambda x: x * number, "float64(float64)", device=True, cc=(9, 0))

    def forked(number):
        pid = os.fork()
        if not pid:
            signal.alarm(100)
            compiled(number)
            sys.exit()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    compiled(0.5)
    print(forked(-0.5))
    """
)


@pytest.mark.slow
def test_a_forked_child_compiles(tmp_path, monkeypatch):
    """The child of a fork compiles after a compilation of its parent."""
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", "0")
    # A file, since the lambda's source is sought.
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert (["0"], "") == (done.stdout.split(), done.stderr)
