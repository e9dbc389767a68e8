"""NUMBA_PTXLINK_LOG: whose messages are shown, wherever the package is used, and that they are shown once."""

from __future__ import annotations

import os
import sys

import processes
import pytest
from ptx_kernels import make_kernel

MESSAGE = "link kernel.ptx for sm_80"
USE = "import numba_ptxlink as pl; pl.link('kernel.ptx', arch='sm_80', lto=False)"


@pytest.fixture
def show(tmp_path):
    """Return a function that runs Python with *command* in a folder with a kernel, and returns its stderr."""
    (tmp_path / "kernel.ptx").write_text(make_kernel())

    def run(*command: str, level: str = "info") -> str:
        environ = {
            **os.environ,
            "NUMBA_PTXLINK_LOG": level,
            "NUMBA_PTXLINK_CACHE": "0",
            # So that no import of numba.cuda sets up logging first.
            "NUMBA_PTXLINK": "1",
        }
        done = processes.run(sys.executable, *command, env=environ, cwd=tmp_path)
        return done.stderr

    return run


def test_a_link_is_logged(show):
    """`link()` shows the decision, without numba.cuda and without the plugin."""
    assert [f"numba_ptxlink._link.run INFO: {MESSAGE}"] == [
        line.partition(":")[0] + ":" + line.split(":")[1] for line in show("-c", USE).splitlines()
    ]
    assert "" == show("-c", USE, level="warning")


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(f"{USE}; pl.enable(); import numba.cuda; {USE}", marks=pytest.mark.slow),
        pytest.param(f"import numba.cuda; {USE}; {USE}", marks=pytest.mark.slow),
        f"import logging; {USE}; logging.basicConfig(level=0, format='app %(message)s'); {USE}",
    ],
)
def test_a_message_is_shown_once(show, program):
    """Whatever is used first, and whenever the application configures logging: each message is one line."""
    pytest.importorskip("numba.cuda")
    assert 2 == show("-c", program).count(MESSAGE)


def test_a_misspelt_variable_is_a_warning(tmp_path):
    """The process that was started names it once, with the names that may be meant."""
    (tmp_path / "udfs.py").write_text(
        "from numba_ptxlink import udf\n@udf('int32(int32)')\ndef f(x):\n    return x\n"
    )
    program = "import numba_ptxlink as pl; pl.export('udfs.py', arch='sm_90', emit='ptx')"
    environ = processes.environ(NUMBA_PTXLINK_CHECK="none", NUMBA_PTXLINK_CACHE="0")
    done = processes.run(sys.executable, "-c", program, env=environ, cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert line.startswith("the environment variable NUMBA_PTXLINK_CHECK has no effect; correct its name to ")
    assert "NUMBA_PTXLINK_CHECKS or " in line


def test_a_wrong_level_is_an_error_of_the_command(monkeypatch, capsys):
    """The command names the variable and the choices, without a traceback."""
    from numba_ptxlink import _config, cli

    monkeypatch.setenv("NUMBA_PTXLINK_LOG", "loud")
    _config.config.cache_clear()
    try:
        assert 1 == cli.main(["doctor"])
    finally:
        monkeypatch.undo()
        _config.config.cache_clear()
    assert "NUMBA_PTXLINK_LOG='loud' is unknown; set it to debug" in capsys.readouterr().err
