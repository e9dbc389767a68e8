"""Run a plan: assemble or link, and cache the result. Nothing here needs a driver."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler, cache
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink.errors import LinkError

from . import backends

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numba_ptxlink._arch import Arch

    from .plan import Plan

log = logging.getLogger(__name__)

# Where all inputs are LTO-IR, nvJitLink compiles a whole program.
_MADE = re.compile(r"Unresolved extern variable '([^']+)' in whole program")


@dataclass(frozen=True)
class Linked:
    """
    The result of a link.

    Args:
        cubin: Machine code that a driver can load.
        arch: The architecture that the cubin is for.
        backend: The tool that made the cubin: "nvptxcompiler", "nvjitlink" or "pynvjitlink".
        lto: Whether the cubin was optimised at link time.
        reason: Why that tool was chosen.
        flags: The exact arguments of the tool.
        inputs: The names of the inputs, in order.
        log: The messages of the tools, and the calls between PTX inputs that were not inlined.
        lowered_names: The symbol of each requested name expression.
        inlined: The calls between PTX inputs that were inlined.
        ptx: The PTX module that the cubin was compiled from, "" if a linker combined the inputs.
    """

    cubin: bytes = field(repr=False)
    arch: Arch
    backend: str
    lto: bool
    reason: str
    flags: tuple[str, ...]
    inputs: tuple[str, ...]
    log: str
    lowered_names: Mapping[str, str] = field(default_factory=dict)
    inlined: int = 0
    ptx: str = field(default="", repr=False)

    def kernel(self, name: str) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        Args:
            name: The kernel's symbol, or a requested name expression.

        Raises:
            LinkError: cuda-core is not installed.
            LaunchError: There is no driver, or it cannot be used.
        """
        try:
            from cuda.core import ObjectCode
        except ImportError as error:
            raise LinkError(
                f"Linked.kernel() loads by cuda-core ({error}); install it: python -m pip install cuda-core."
            ) from error
        from numba_ptxlink._tools import driver

        # Without one cuda.core fails in the middle of its own start.
        driver.require()
        return ObjectCode.from_cubin(self.cubin).get_kernel(self.lowered_names.get(name, name))


def run(plan: Plan) -> Linked:
    """
    Make the cubin of *plan*.

    Raises:
        LinkError: nvJitLink refused the link.
        AssembleError: A single PTX could not be assembled.
    """
    if plan.tool == "nvptxcompiler":
        (ptx,) = plan.inputs
        cubin = plan.cubin or assembler.compile_ptx(ptx.code, plan.arch, plan.options.for_assembler)
        code, said = cubin.code, cubin.info_log
    else:
        entry = _linked(plan)
        code, said = entry.code, entry.log
    alone = len(plan.inputs) == 1 and plan.inputs[0].kind == PTX
    if said:
        log.info("%s: %s", ", ".join(plan.names), said.strip())
    if plan.remarks:
        log.info("%s", plan.remarks)
    return Linked(
        code,
        plan.arch,
        plan.tool,
        plan.options.lto,
        plan.reason,
        plan.flags,
        plan.names,
        "\n".join(filter(None, (said, plan.remarks))),
        inlined=plan.inlined,
        ptx=plan.inputs[0].text.rstrip("\0") if alone else "",
    )


def _linked(plan: Plan) -> cache.Entry:
    tool = backends.linker(plan.tool)
    contents = [(source.kind, source.name, source.code) for source in plan.inputs]

    def make() -> cache.Entry:
        product = tool.link(contents, plan.flags)
        said = "\n".join(filter(None, (product.info_log, product.error_log)))
        wrong = [line for line in product.error_log.splitlines() if line.startswith("error")]
        if plan.options.compares and wrong:
            # nvJitLink returns success here.
            raise _failure(plan, "linked wrongly", product.error_log)
        made = [name for name in _MADE.findall(product.info_log) if _holds(product.code, name)]
        if made:
            undefined = "\n".join(f"error   : Undefined reference to '{name}'" for name in made)
            raise _failure(plan, "made variables of its own", undefined)
        return cache.Entry({"log": said}, product.code)

    # What nvJitLink links wrongly answers for no link that compares.
    unread = () if plan.options.compares else ("all",)
    return cache.cached(tool.key(contents, plan.flags, unread=unread), make)


def _holds(cubin: bytes, name: str) -> bool:
    """Return whether *cubin* defines the variable: shared memory that a launch sizes is only declared."""
    from numba_ptxlink._formats import elf

    return any(each.name == name and each.kind == "variable" for each in elf.read(cubin).symbols)


def _failure(plan: Plan, action: str, text: str) -> LinkError:
    names = ", ".join(plan.names)
    return LinkError(
        f"nvJitLink {action}: {names}.\n{text.strip()}\nFlags: {' '.join(plan.flags)}.",
        flags=plan.flags,
        inputs=plan.names,
        log=text,
    )


def make_ptx(plan: Plan) -> cache.Entry:
    """
    Return the PTX that link-time optimisation makes by *plan*.

    Raises:
        LinkError: nvJitLink refused the link.
    """
    return _linked(plan)
