"""
The steps of a link whose sources are compiled: check, plan, run.

Each is a function of what the step before it returns. `link` and the linkers of the front ends call this one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AssembleError, LinkError

from .check import check
from .plan import plan, second
from .run import make_ptx, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch

    from .plan import LinkOptions, Plan
    from .read import Input
    from .run import Linked

log = logging.getLogger(__name__)


def link(inputs: Sequence[Input], arch: Arch, options: LinkOptions) -> Linked:
    """
    Link *inputs*, none of them CUDA C++, to a cubin.

    Raises:
        LinkError: The inputs contradict each other, or the linker refused them. With the cure, where it is
            known.
        AssembleError: A single PTX could not be assembled.
        ConfigError: There is no such backend.
    """
    made = _planned(inputs, arch, options)
    try:
        try:
            return run(made)
        except (AssembleError, LinkError) as error:
            other = second(made, error)
            if other is None:
                raise
            log.info("%s", other)
            return run(other)
    except (AssembleError, LinkError) as error:
        from .explain import explained

        raise explained(error, made.sources, made.tool) from error


def link_to_ptx(
    inputs: Sequence[Input], arch: Arch, options: LinkOptions
) -> tuple[cache.Entry, tuple[str, ...]]:
    """
    Return the PTX that link-time optimisation makes of *inputs*, and the flags of that link.

    Raises:
        LinkError: nvJitLink refused the link, or the backend does not link.
    """
    made = _planned(inputs, arch, options, ptx=True)
    try:
        return make_ptx(made), made.flags
    except LinkError as error:
        from .explain import explained

        raise explained(error, made.sources, made.tool) from error


def _planned(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, ptx: bool = False) -> Plan:
    try:
        checked = check(inputs, arch, lto=options.lto, compares=options.compares)
    except LinkError as error:
        from .explain import explained

        raise explained(error, inputs) from error
    made = plan(checked, arch, options, ptx=ptx)
    log.info("%s", made)
    return made
