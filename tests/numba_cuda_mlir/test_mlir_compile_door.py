"""`numba_cuda_mlir.cuda.compile` with `abi_info`: names, kinds of output, options; stock's without."""

from __future__ import annotations

import errors_module as errors
import front_ends
import pytest
from mlir_replaced import no_device, replaced, stock  # noqa: F401 - fixtures

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types
INT = types.int32(types.int32)
CC = (9, 0)
pytestmark = pytest.mark.usefixtures("replaced")


def increment(value):
    """Add one."""
    return value + 1


def store(out, value):
    """Write a value."""
    out[0] = value


def store_second(out, pair):
    """Write the second of two values."""
    out[0] = pair[1]


def second(_, number):
    """Return the second argument."""
    return number


def share(values, i):
    """Return a value in parts of the first."""
    return values[i] / values[0]


def defined(ptx):
    """Return the functions in *ptx* by name."""
    return {
        function.name: function
        for function in parse(ptx).functions
        if function.defined and function.linkage == "visible"
    }


def test_without_a_name_it_is_the_functions_own():
    """So it is by each of the functions that compile."""
    assert ["increment"] == list(defined(cuda.compile(increment, INT, cc=CC, abi_info={})[0]))
    ptx, result = cuda.compile_ptx(increment, INT, cc=CC, device=True, abi="c", abi_info={})
    assert (["increment"], types.int32) == (list(defined(ptx)), result)


def test_kernels_have_a_c_abi():
    """With `abi_info`, a kernel has the name and takes values as C++ does; stock refuses it without."""
    pair = types.Tuple((types.int8, types.float64))
    ptx, _ = cuda.compile(
        store_second,
        types.void(types.float64[::1], pair),
        cc=CC,
        device=False,
        abi_info={"abi_name": "kernel"},
        launch_bounds=64,
    )
    assert ".entry kernel" in ptx
    assert ".maxntid 64" in ptx
    with pytest.raises(NotImplementedError, match="not supported for kernels"):
        cuda.compile(store, types.void(types.float64[::1], types.float64), cc=CC, device=False)


def test_errors_can_be_asked_for():
    """`abi_info` accepts the effect of an error; checks are refused."""
    traps = []
    for on_error in ("zero", "trap"):
        info = {"abi_name": "f", "on_error": on_error}
        ptx, _ = cuda.compile(errors.asserted, types.int32(types.int32, types.int32), cc=CC, abi_info=info)
        traps.append("trap;" in ptx)
    assert [False, True] == traps
    with pytest.raises(pl.ExportError, match="checked=True is not available"):
        cuda.compile(increment, INT, cc=CC, abi_info={"checked": True})


@pytest.mark.parametrize(
    "pointee",
    [types.Type("of an extension"), types.Tuple(()), types.Optional(types.int32), types.float32[:]],
    ids=str,
)
@pytest.mark.parametrize("output", ["ptx", "ltoir"])
def test_a_type_without_c_type_is_passed_as_upstream_does(pointee, output, caplog):
    """A pointer to a type that C lacks, as an extension's struct, compiles as before; the log says why."""
    signature = types.int32(types.CPointer(pointee), types.int32)
    info = {"abi_name": "second"}
    with caplog.at_level("INFO"):
        code, result = cuda.compile(second, signature, cc=CC, abi="c", abi_info=info, output=output)
    assert types.int32 == result
    assert "parameter '_', of Numba type" in caplog.text
    if output == "ptx":
        assert ["second"] == list(defined(code))
    with pytest.raises(pl.AbiError, match="parameter '_', of Numba type"):
        cuda.compile(second, signature, cc=CC, abi_info={**info, "on_error": "zero"}, output=output)


@pytest.mark.parametrize(
    ("declared", "compile_options"),
    [
        ({"lineinfo": True}, {"lineinfo": True}),
        pytest.param({"opt_level": 0}, {"opt": False}, marks=front_ends.MLIR_06),
        ({"fastmath": True}, {"fastmath": True}),
        ({"debug": True, "opt": False}, {"debug": True, "opt": False}),
        ({"chip": "sm_80"}, {"cc": (8, 0)}),
        ({"cc": (8, 0)}, {"cc": (8, 0)}),
    ],
    ids=str,
)
@pytest.mark.usefixtures("no_device")
def test_options_of_a_dispatcher_count(declared, compile_options):
    """Options of `cuda.jit` hold as if `cuda.compile` had them, and stay unchanged."""
    signature = types.float32(types.float32[::1], types.int32)
    options = {"abi_info": {"abi_name": "f"}} | ({} if compile_options.keys() & {"cc"} else {"cc": CC})
    dispatcher = cuda.jit(device=True, **declared)(share)
    target_options = dict(dispatcher.targetoptions)
    plain = cuda.compile(share, signature, **{**options, **compile_options})
    assert plain == cuda.compile(dispatcher, signature, **options)
    assert plain != cuda.compile(share, signature, **{**options, "cc": CC})
    if "debug" not in declared:
        assert target_options == dispatcher.targetoptions
