"""Which tool makes the cubin, by what the inputs need or by request."""

from __future__ import annotations

import sys
import types

import pytest
from linkcases import CALLEE, CALLER, KERNEL, cubin, function
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._config import Config
from numba_ptxlink._link import backends, plan, run
from numba_ptxlink._link.plan import LinkOptions
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools import find, nvjitlink, nvrtc
from numba_ptxlink.cache import Cache


def test_auto_takes_what_the_inputs_need():
    """One PTX is assembled, several inputs are linked."""
    assert "nvptxcompiler" == pl.link(make_kernel(), arch="sm_80").backend
    assert "nvjitlink" == pl.link(KERNEL, cubin(function()), arch="sm_80").backend


def test_many_functions_are_a_linkers(monkeypatch):
    """A linker that reads it compiles one PTX of many functions: it takes a fraction of the time."""
    functions = "".join(f".visible .func f{number}() {{ ret; }}\n" for number in range(201))
    monkeypatch.setattr(backends, "installed", lambda: ("nvjitlink", (13, 5)))
    for text, tool in ((make_kernel() + functions, "nvjitlink"), (make_kernel(), "nvptxcompiler")):
        ptx = Input("ptx", "k.ptx", text.encode())
        assert tool == plan.choose([ptx], pl.Arch(8, 0), LinkOptions())[0]


def test_a_backend_that_is_asked_for_is_used():
    """A lone PTX goes to nvJitLink where that is asked for."""
    linked = pl.link(make_kernel(), arch="sm_80", backend="nvjitlink")
    assert ("nvjitlink", "asked for") == (linked.backend, linked.reason)


@pytest.mark.parametrize(
    ("inputs", "obstacle"),
    [
        ((KERNEL, cubin(function())), "2 inputs"),
        ((CALLER + CALLEE.format(value=1),), "link-time optimisation"),
    ],
)
def test_a_backend_that_cannot_do_it_is_an_error(inputs, obstacle):
    """Asking nvPTXCompiler to link is an error that says why and which backends can."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(*inputs, arch="sm_80", backend="nvptxcompiler", lto="time" in obstacle)
    assert obstacle in str(caught.value)
    assert "The backends nvjitlink and pynvjitlink can do it" in str(caught.value)


def in_a_toolkit(monkeypatch, version):
    """Let nvJitLink be of another release, None for no nvJitLink."""

    def missing():
        raise pl.LinkError("nvJitLink could not be loaded")

    monkeypatch.setitem(sys.modules, "pynvjitlink", None)
    monkeypatch.setattr(nvjitlink, "version", missing if version is None else lambda: version)
    monkeypatch.setattr(find, "major", lambda: version[0] if version else 13)
    monkeypatch.setattr(nvrtc, "version", lambda: version)
    devices = (pl.Arch(7, 0), pl.Arch(8, 0), pl.Arch(9, 0))
    monkeypatch.setattr(nvrtc, "supported_archs", lambda: devices)


@pytest.fixture
def used_cache(monkeypatch, tmp_path):
    """Return a cache of this test's own, which the package uses."""
    own = Cache(Config(cache_dirs=(str(tmp_path),)))
    monkeypatch.setattr("numba_ptxlink.cache.tiered.default", lambda: own)
    monkeypatch.setattr("numba_ptxlink.cache.default", lambda: own)
    return own


USUAL = ("nvptxcompiler", "one PTX and nothing to link it with")
UNKNOWN = "which nvPTXCompiler 13.5 does not know"


@pytest.mark.parametrize(
    ("toolkit", "arch", "isa", "chosen"),
    [
        (None, "sm_80", "8.0", USUAL),
        ((13, 5), "sm_80", "9.4", USUAL),
        ((13, 0), "sm_80", "9.4", USUAL),
        ((14, 0), "sm_80", "9.4", USUAL),
        # nvPTXCompiler says best that nothing here knows the device.
        ((13, 5), "sm_70", "8.0", USUAL),
        ((13, 0), "sm_130", "9.0", USUAL),
        (None, "sm_70", "8.0", USUAL),
        ((12, 9), "sm_70", "8.8", ("nvjitlink", f"sm_70, {UNKNOWN}")),
        ((14, 0), "sm_130", "9.4", ("nvjitlink", f"sm_130, {UNKNOWN}")),
        ((14, 0), "sm_130a", "9.4", ("nvjitlink", f"sm_130a, {UNKNOWN}")),
        ((14, 0), "sm_80", "99.0", ("nvjitlink", "PTX 99.0, newer than nvPTXCompiler's 9.5")),
        ((13, 0), "sm_80", "99.0", ("nvjitlink", "PTX 99.0, newer than nvPTXCompiler's 9.5")),
        (
            (12, 9),
            "sm_90a",
            "8.8",
            (
                "nvjitlink",
                "the toolkit is of CUDA 12.9, whose drivers may not load nvPTXCompiler 13.5's code",
            ),
        ),
        ((12, 4), "sm_80", "8.5", ("nvptxcompiler", "PTX 8.5, and nvJitLink 12.4 reads 8.4 at most")),
        ((12, 4), "sm_120", "8.4", ("nvptxcompiler", "sm_120, which nvJitLink 12.4 does not know")),
    ],
)
def test_the_toolkit_and_the_device_decide_about_one_ptx(monkeypatch, toolkit, arch, isa, chosen):
    """A toolkit of an older major version, and what nvPTXCompiler does not know, are nvJitLink's."""
    in_a_toolkit(monkeypatch, toolkit)
    monkeypatch.setattr(plan.assembler, "compiler_version", lambda: (13, 5))
    monkeypatch.setattr(plan.assembler, "supported_ptx_versions", lambda: (PtxVersion(9, 5),))
    ptx = Input("ptx", "k.ptx", make_kernel().replace(".version 8.0", f".version {isa}").encode())
    assert chosen == plan.choose([ptx], pl.Arch.of(arch), LinkOptions())


def test_a_cubin_in_the_cache_is_no_answer_to_an_older_toolkit(monkeypatch, used_cache):
    """What nvPTXCompiler made for a newer toolkit is not what an older one's drivers load."""
    options = LinkOptions()

    def link() -> tuple[str, int]:
        linked = run.link([Input("ptx", "k.ptx", make_kernel().encode())], pl.Arch(8, 0), options)
        return linked.backend, used_cache.counters.hits

    assert [("nvptxcompiler", 0), ("nvptxcompiler", 1)] == [link(), link()]
    in_a_toolkit(monkeypatch, (12, 9))
    assert "nvjitlink" == link()[0]
    options = LinkOptions(backend="nvptxcompiler")
    assert "nvptxcompiler" == link()[0]


@pytest.fixture
def pynvjitlink(monkeypatch):
    """Put a stand-in in place of pynvjitlink, whose import needs a driver."""
    api = types.ModuleType("pynvjitlink.api")
    api.NvJitLinker, api.NvJitLinkError = object, RuntimeError
    api.nvjitlink_version = lambda: (12, 9)
    package = types.ModuleType("pynvjitlink")
    package.api = api
    monkeypatch.setitem(sys.modules, "pynvjitlink", package)
    monkeypatch.setitem(sys.modules, "pynvjitlink.api", api)


@pytest.mark.usefixtures("pynvjitlink")
def test_auto_falls_back_with_a_reason(monkeypatch):
    """Where only the CUDA 12 binding is installed, auto takes it and says so."""

    def missing():
        raise pl.LinkError("nvJitLink could not be loaded")

    monkeypatch.setattr(nvjitlink, "version", missing)
    chosen = plan.choose([], pl.Arch(8, 0), LinkOptions(lto=True))
    assert (
        "pynvjitlink",
        "link-time optimisation, and nvJitLink is not there through cuda.bindings",
    ) == chosen
    monkeypatch.setitem(sys.modules, "pynvjitlink", None)
    with pytest.raises(pl.LinkError, match="nvJitLink could not be loaded"):
        plan.choose([], pl.Arch(8, 0), LinkOptions(lto=True))
