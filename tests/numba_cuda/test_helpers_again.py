"""A device function that is compiled again, by its user or for another architecture."""

from __future__ import annotations

import re

from numba import cuda
from numba.cuda.extending import intrinsic, overload

KERNEL = "void(float32[::1])"


def compiled(function, cc=(7, 5)):
    """Return the PTX of a kernel."""
    return cuda.compile(function, KERNEL, device=False, abi_info={"abi_name": "kernel"}, cc=cc)[0]


def numbers(ptx):
    """Return the floating-point constants of *ptx*."""
    return re.findall(r"\b0[df][0-9A-F]+", ptx)


def calling(helper):
    """Return a kernel that calls *helper*."""

    def kernel(x):
        x[0] = helper(x[0])

    return kernel


def test_code_for_another_architecture_is_not_used():
    """A helper that is compiled for another GPU, while its caller is lowered, is compiled again."""
    texts = []

    @cuda.jit(device=True)
    def helper(x):
        return architecture(x)

    def architecture(x):
        """Return the architecture that this is compiled for."""

    @overload(architecture, target="cuda")
    def architecture_of(x):  # noqa: ARG001 - the type alone counts
        from numba.cuda.core.targetconfig import ConfigStack

        flags = [getattr(flags, "compute_capability", None) for flags in ConfigStack()._stk._stack]
        major = next(filter(None, reversed(flags)))[0]
        return lambda x: x + 100 * major

    @intrinsic
    def meanwhile(_typing, x):
        def lowered(_context, _builder, _signature, args):
            texts.append(compiled(calling(helper), (9, 0)))
            return args[0]

        return x(x), lowered

    def kernel(x):
        x[0] = helper(meanwhile(x[0]))

    assert ["0f442F0000"] == numbers(compiled(kernel))  # 700
    assert ["0f44610000"] == numbers(texts[0])  # 900
