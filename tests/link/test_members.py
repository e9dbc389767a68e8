"""Static libraries that define one symbol: what the link takes of them."""

from __future__ import annotations

import pytest
from linkcases import CALLEE, CALLER, HEAD, KERNEL, archive, function, object_of

import numba_ptxlink as pl
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._link.checks import check

ARCH = pl.Arch.of("sm_80")
OTHER = 'extern "C" __device__ int f(int); extern "C" __device__ int g(int a) { return f(a) + 5; }\n'
CALLS = {"f": KERNEL, "g": KERNEL.replace(" f(", " g(").replace(", f,", ", g,")}
UNRELATED = HEAD.format(target="sm_80") + ".visible .entry other()\n{\n    ret;\n}\n"


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Return two objects that define `f` differently, and one that defines `g`, which calls `f`."""
    folder = tmp_path_factory.mktemp("objects")
    return [object_of(source, folder) for source in (CALLEE.format(value=1), CALLEE.format(value=2), OTHER)]


def checked(*inputs):
    """Return the names of the inputs that are linked."""
    named = [
        link_inputs.Input("archive" if code.startswith(b"!<arch>") else "ptx", f"{number}", code)
        for number, code in enumerate(code if isinstance(code, bytes) else code.encode() for code in inputs)
    ]
    return [source.name for source in check(named, ARCH, (13, 5), "nvjitlink").inputs]


@pytest.mark.slow
@pytest.mark.parametrize("code", [KERNEL, CALLER, CALLS["g"]], ids=["ptx", "cu", "by another member"])
@pytest.mark.parametrize("together", [True, False])
def test_two_members_that_define_what_is_called_are_refused(objects, code, together):
    """Which of two definitions in libraries is called never depends on their order; both are named."""
    one, two, other = objects
    libraries = [archive(one, two, other)] if together else [archive(one), archive(two, other)]
    for ordered in (libraries, libraries[::-1]):
        with pytest.raises(pl.LinkError, match=r"f is defined 2 times.*\(0.o\).*\([01].o\)"):
            pl.link(code, *ordered, arch=ARCH)


@pytest.mark.slow
def test_members_that_nothing_calls_are_left_out(objects, capfd):
    """Members that define one symbol are no conflict where nothing references it."""
    one, two, other = objects
    assert ["0"] == checked(UNRELATED, archive(one), archive(two))
    assert ["0"] == checked(UNRELATED, archive(one, two, other))
    assert pl.link(UNRELATED, archive(one), archive(two), arch=ARCH).cubin
    assert ("", "") == capfd.readouterr()


@pytest.mark.slow
def test_a_library_gives_only_what_nobody_defines(objects, capfd):
    """An input's definition comes before a library's, whatever their order."""
    library = archive(objects[1], objects[2])
    assert ["0", "1"] == checked(KERNEL, function(), library)
    assert ["0", "1(1.o)", "2"] == checked(CALLS["g"], library, function())
    for pair in ((function(), library), (library, function())):
        assert pl.link(KERNEL, *pair, arch=ARCH).cubin
    assert ("", "") == capfd.readouterr()


@pytest.mark.slow
def test_a_member_of_two_libraries_is_linked_once(objects):
    """The same member in two libraries is one member."""
    one, _, other = objects
    assert ["0", "1(0.o)"] == checked(KERNEL, archive(one), archive(one, other))


@pytest.mark.slow
def test_libraries_alone_are_linked_whole(objects):
    """Where nothing but libraries is given, nothing says what is needed, and all of it is compared."""
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        checked(archive(*objects))
    assert 1 == len(checked(archive(objects[0], objects[2])))


@pytest.mark.slow
def test_members_with_kernels_are_kept(objects, tmp_path):
    """A kernel is needed though nothing references it, and so is what it calls."""
    kernel = object_of(CALLER, tmp_path)
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        checked(UNRELATED, archive(objects[0], kernel), archive(objects[1]))
