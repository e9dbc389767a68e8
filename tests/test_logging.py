"""NUMBA_PTXLINK_LOG: whose messages are shown, wherever the package is used, and that they are shown once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ptx_kernels import make_kernel

MESSAGE = "link kernel.ptx for sm_80"
USE = "import numba_ptxlink as pl; pl.link('kernel.ptx', arch='sm_80', lto=False)"


@pytest.fixture
def show(tmp_path):
    """Return what runs Python with *command* in a folder with a kernel, and returns its stderr."""
    (tmp_path / "kernel.ptx").write_text(make_kernel())

    def run(*command: str, level: str = "info") -> str:
        environ = {
            **os.environ,
            "NUMBA_PTXLINK_LOG": level,
            "NUMBA_PTXLINK_CACHE": "0",
            # So that no import of numba.cuda sets up logging first.
            "NUMBA_PTXLINK": "1",
        }
        done = subprocess.run(
            [sys.executable, *command], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        return done.stderr

    return run


def test_a_link_is_logged(show):
    """`link()` shows the decision, without numba.cuda and without the plugin."""
    assert [f"numba_ptxlink._link.pipeline INFO: {MESSAGE}"] == [
        line.partition(":")[0] + ":" + line.split(":")[1] for line in show("-c", USE).splitlines()
    ]
    assert "" == show("-c", USE, level="warning")


def test_the_command_line_logs(show):
    """So does `numba-ptxlink link`."""
    command = ("link", "kernel.ptx", "-o", "k.cubin", "--arch", "sm_80", "--no-lto")
    assert 1 == show("-m", "numba_ptxlink.cli", *command).count(MESSAGE)


@pytest.mark.parametrize(
    "program",
    [
        f"{USE}; pl.enable(); import numba.cuda; {USE}",
        pytest.param(f"import numba.cuda; {USE}; {USE}", marks=pytest.mark.slow),
        "import logging; logging.basicConfig(level=0, format='app %(message)s'); " + f"{USE}; {USE}",
        f"import logging; {USE}; logging.basicConfig(level=0, format='app %(message)s'); {USE}",
    ],
)
def test_a_message_is_shown_once(show, program):
    """Whatever is used first, and whenever the application configures logging: each message is one line."""
    pytest.importorskip("numba.cuda")
    assert 2 == show("-c", program).count(MESSAGE)


@pytest.mark.parametrize(
    ("verbose", "shown"), [(0, ["numba-ptxlink: warning: no"]), (1, ["chosen", "numba-ptxlink: warning: no"])]
)
def test_a_command_shows_messages_in_one_form(show, verbose, shown):
    """Once, also where a package that it imports logs by the root logger, which gives that a handler."""
    program = (
        "import logging; from numba_ptxlink._cli import arguments; "
        "log = logging.getLogger('numba_ptxlink._link.consumer')\n"
        f"with arguments.messages_shown({verbose}, quiet=False):\n"
        "    logging.info('other'); log.info('chosen'); log.warning('no')\n"
        "assert not logging.getLogger().handlers"
    )
    assert shown == show("-c", program, level="").splitlines()


def test_what_the_application_configured_stays(show):
    """A logger with a handler or a level of its own is left alone."""
    own = "import logging; log = logging.getLogger('numba_ptxlink'); "
    assert "" == show("-c", f"{own} log.setLevel('ERROR'); {USE}; assert log.handlers == []")
    assert "" == show(
        "-c", f"{own} log.addHandler(logging.NullHandler()); {USE}; assert len(log.handlers) == 1"
    )


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
