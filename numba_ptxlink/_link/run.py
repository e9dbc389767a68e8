"""
Run a plan: assemble or link, and cache the result. Nothing here needs a driver.

`link` takes the steps of a link whose sources are compiled: check, plan, run. Each is a function of what the
step before it returns. `numba_ptxlink.link` and the linkers of the front ends call this one.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler, cache
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink.errors import AssembleError, LinkError

from . import backends
from .check import check
from .plan import plan, second

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch

    from .plan import LinkOptions, Plan
    from .read import Input

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
    with _explaining(made.sources, made.tool):
        try:
            return run(made)
        except (AssembleError, LinkError) as error:
            other = second(made, error)
            if other is None:
                raise
            log.info("%s", other)
            return run(other)


def link_to_ptx(
    inputs: Sequence[Input], arch: Arch, options: LinkOptions
) -> tuple[cache.Entry, tuple[str, ...]]:
    """
    Return the PTX that link-time optimisation makes of *inputs*, and the flags of that link.

    Raises:
        LinkError: nvJitLink refused the link, or the backend does not link.
    """
    made = _planned(inputs, arch, options, ptx=True)
    with _explaining(made.sources, made.tool):
        return _linked(made), made.flags


def _planned(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, ptx: bool = False) -> Plan:
    with _explaining(inputs):
        checked = check(inputs, arch, lto=options.lto, compares=options.compares)
    made = plan(checked, arch, options, ptx=ptx)
    log.info("%s", made)
    return made


@contextmanager
def _explaining(sources: Sequence[Input], tool: str = "") -> Iterator[None]:
    """Let errors of a `with` block tell what helps."""
    try:
        yield
    except (AssembleError, LinkError) as error:
        from .explain import explained

        raise explained(error, sources, tool) from error


def run(made: Plan) -> Linked:
    """
    Make the cubin of the plan *made*.

    Raises:
        LinkError: nvJitLink refused the link.
        AssembleError: A single PTX could not be assembled.
    """
    if made.tool == "nvptxcompiler":
        (ptx,) = made.inputs
        cubin = made.cubin or assembler.compile_ptx(ptx.code, made.arch, made.options.for_assembler)
        code, said = cubin.code, cubin.info_log
    else:
        entry = _linked(made)
        code, said = entry.code, entry.log
    alone = len(made.inputs) == 1 and made.inputs[0].kind == PTX
    if said:
        log.info("%s: %s", ", ".join(made.names), said.strip())
    if made.remarks:
        log.info("%s", made.remarks)
    return Linked(
        code,
        made.arch,
        made.tool,
        made.options.lto,
        made.reason,
        made.flags,
        made.names,
        "\n".join(filter(None, (said, made.remarks))),
        inlined=made.inlined,
        ptx=made.inputs[0].text.rstrip("\0") if alone else "",
    )


def _linked(made: Plan) -> cache.Entry:
    tool = backends.linker(made.tool)
    contents = [(source.kind, source.name, source.code) for source in made.inputs]

    def make() -> cache.Entry:
        product = tool.link(contents, made.flags)
        said = "\n".join(filter(None, (product.info_log, product.error_log)))
        wrong = [line for line in product.error_log.splitlines() if line.startswith("error")]
        if made.options.compares and wrong:
            # nvJitLink returns success here.
            raise _failure(made, "linked wrongly", product.error_log)
        new = [name for name in _MADE.findall(product.info_log) if _holds(product.code, name)]
        if new:
            undefined = "\n".join(f"error   : Undefined reference to '{name}'" for name in new)
            raise _failure(made, "made variables of its own", undefined)
        return cache.Entry({"log": said}, product.code)

    # What nvJitLink links wrongly answers for no link that compares.
    unread = () if made.options.compares else ("all",)
    return cache.cached(tool.key(contents, made.flags, unread=unread), make)


def _holds(cubin: bytes, name: str) -> bool:
    """Return whether *cubin* defines the variable: shared memory that a launch sizes is only declared."""
    from numba_ptxlink._formats import elf

    return any(each.name == name and each.kind == "variable" for each in elf.read(cubin).symbols)


def _failure(made: Plan, action: str, text: str) -> LinkError:
    names = ", ".join(made.names)
    return LinkError(
        f"nvJitLink {action}: {names}.\n{text.strip()}\nFlags: {' '.join(made.flags)}.",
        flags=made.flags,
        inputs=made.names,
        log=text,
    )
