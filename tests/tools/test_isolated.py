"""Calls with lasting effects on NVIDIA's libraries run in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import compiled_after
import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import isolated, nvrtc

ARCH = pl.Arch.of("sm_100")
TOOLS = ("nvrtc", "nvrtc, quickly", "lto -g", "lto -O0", "nvvm")


def digests_after(arch: str, scope: str, *before: str, cache: Path) -> dict[str, str]:
    """Return digests of the output of *scope* ("tools" or "all") in a process that began with *before*."""
    done = subprocess.run(
        [sys.executable, compiled_after.__file__, arch, scope, *before],
        env={**os.environ, "NUMBA_PTXLINK_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_debugging_process_makes_what_another_one_does(tmp_path):
    """After debug and unoptimised compilations, each tool returns the same bytes, and so does the cache."""
    alone = digests_after("sm_100", "tools", cache=tmp_path / "alone")
    assert alone == digests_after("sm_100", "tools", *TOOLS, cache=tmp_path / "after")
    assert alone == digests_after("sm_100", "tools", cache=tmp_path / "after")


def test_what_another_package_spoilt_is_made_again(tmp_path):
    """Wrong PTX of a compiler that somebody else debugged with is recognised; none is kept."""
    alone = digests_after("sm_120", "tools", cache=tmp_path / "alone")
    assert alone == digests_after("sm_120", "tools", "another package", cache=tmp_path / "after")
    assert alone == digests_after("sm_120", "tools", cache=tmp_path / "after")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_103", "sm_120"])
def test_both_front_ends_in_a_debugging_process(arch, tmp_path):
    """After every such call, with and without LTO, the tools and both front ends give the same bytes."""
    alone = digests_after(arch, "all", cache=tmp_path / "alone")
    assert alone == digests_after(arch, "all", *compiled_after.BEFORE, cache=tmp_path / "after")


CVTA = "mov.b64 %rd1, k_param_0;\n@%p1 cvta.param.u64 %rd2, %rd1;\n"


@pytest.mark.parametrize(
    ("text", "spoilt"),
    [
        (f"{CVTA}ld.param.b32 %r1, [%rd2+156];", True),
        (f"{CVTA}add.s64 %rd3, %rd2, %rd9;\nld.param.v2.b32 {{%r1, %r2}}, [%rd3];", True),
        (f"{CVTA}st.param.b32 [%rd2], %r1;", True),
        (f"{CVTA}add.s64 %rd3, %rd1, %rd9;\nld.param.b32 %r1, [%rd3];\nld.b32 %r2, [%rd2];", False),
        (f"{CVTA}st.param.b64 [param0], %rd2;", False),
        (f"{CVTA}ret;\nmov.b64 %rd2, other_param_0;\nld.param.b32 %r1, [%rd2];", False),
    ],
)
def test_wrong_ptx_is_told_by_its_addresses(text, spoilt):
    """A generic address is wrong where a parameter is loaded or stored, and right anywhere else."""
    assert isolated.has_generic_param_access(text.encode()) is spoilt


def ptx(flags=("-G",)):
    """Return the PTX of an empty source."""
    options = nvrtc.SourceOptions(flags=flags)
    return nvrtc.compile_source("__device__ int x;", "empty.cu", ARCH, options).code


@pytest.fixture
def no_child(monkeypatch):
    """Let no process be started."""

    def refused(*_, **__):
        raise PermissionError("seccomp allows no fork")

    monkeypatch.setattr(subprocess, "Popen", refused)


@pytest.mark.usefixtures("no_child")
def test_where_no_child_starts_the_call_is_an_error():
    """The error has the cause and the cure; the shared library is not called for debug code."""
    with pytest.raises(pl.LinkError, match=r"no fork\); allow child processes, or leave out debug") as caught:
        ptx()
    assert "-G" in caught.value.flags
    assert ptx(())


def test_the_end_of_the_child_is_an_error():
    """The process goes on, and has the child's last words."""
    with pytest.raises(pl.LinkError, match="has ended the child process that called it") as caught:
        isolated.call("nvvm", "libc.so.6", ["-opt=0"], [("name", b"", "whole")], in_child=True)
    assert ("undefined symbol" in caught.value.log, caught.value.inputs) == (True, ("name",))


STREAMS = """
import os, sys, threading
from pathlib import Path
from numba_ptxlink import Arch
from numba_ptxlink._tools import nvrtc

def code():
    options = nvrtc.SourceOptions(flags=("-G",))
    return nvrtc.compile_source("__device__ int x;", "a.cu", Arch.of("sm_100"), options).code

first = code()
for descriptor in range(3):
    os.close(descriptor)
before = sorted(os.listdir("/proc/self/fd"))
made = []
threads = [threading.Thread(target=lambda: made.append(code())) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
child = os.fork()
if not child:
    os._exit(code() != first)
made.append(os.waitpid(child, 0)[1])
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    made.append("no child")
made.append(sorted(os.listdir("/proc/self/fd")) == before)
Path(sys.argv[1]).write_text(repr(made == [first] * 3 + [0, "no child", True]))
"""


def test_children_need_no_standard_streams(tmp_path):
    """Nor the main thread, nor a process that was not forked; no child and no descriptor is left."""
    subprocess.run([sys.executable, "-c", STREAMS, tmp_path / "done"], check=True, timeout=120)
    assert (tmp_path / "done").read_text() == "True"


INTERRUPTED = """
import os, signal, sys, threading
from numba_ptxlink import Arch
from numba_ptxlink._tools import nvrtc

threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
try:
    while True:
        options = nvrtc.SourceOptions(flags=("-G", f"-DX={os.times().elapsed}"))
        nvrtc.compile_source("__device__ int x;", "a.cu", Arch.of("sm_100"), options)
except KeyboardInterrupt:
    pass
try:
    # One that was interrupted while it started finds no request, and ends by itself.
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_child():
    """Ctrl-C is no error of the library, and leaves no child that goes on."""
    output = subprocess.check_output([sys.executable, "-c", INTERRUPTED], text=True, timeout=120)
    assert output == "no child\n"


LOCK = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from linkcases import KERNEL, cubin, function
from numba_ptxlink import LinkError
from numba_ptxlink._tools import nvjitlink

def link(target):
    text = function(target=target).replace(".version 8.0", ".version 9.0")
    code = cubin(text, target)
    return nvjitlink.link([("ptx", "k", KERNEL.encode()), ("cubin", "f", code)], ["-arch=sm_90"]).code

for wrong in ("sm_80", "sm_90a", "sm_100f", "sm_120"):
    try:
        link(wrong)
    except LinkError as error:
        print("bad input" in error.log)
done = threading.Thread(target=lambda: print(len(link("sm_90")) > 0))
done.start()
done.join()
"""


def test_links_go_on_where_nvjitlink_would_wait_for_ever(tmp_path):
    """After a refusal that leaves its lock held, links of other threads are made in children."""
    helpers = Path(compiled_after.__file__).parent
    command = [sys.executable, "-c", LOCK, helpers]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True"] * 5
