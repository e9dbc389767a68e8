"""
Run a plan: assemble or link, and cache the result. Nothing here needs a driver.

`link` takes the steps of a link whose sources are compiled: check, fuse, plan, run. Each is a function of
what the step before it returns. `numba_ptxlink.link` and the linkers of the front ends call this one.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from numba_ptxlink import assembler, cache
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AssembleError, LaunchError, LinkError, converted, shown

from . import backends
from .backends import CURRENT_ENVIRONMENT, Target
from .check import check
from .fuse import Fusion, fuse
from .plan import plan
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import Options
    from numba_ptxlink.errors import PtxlinkError

    from .plan import Plan

log = logging.getLogger(__name__)

# What a compiler says after the line's number, if it names one.
_ERROR = r"(?:error|fatal)\s*: (.+)"
# Where all inputs are LTO-IR, nvJitLink compiles a whole program.
_MADE = r"Unresolved extern variable '([^']+)' in whole program"


@dataclass(frozen=True)
class Linked:
    """
    The result of a link.

    Args:
        cubin: Machine code that a driver can load.
        arch: The architecture that the cubin is for.
        backend: The tool that made the cubin: "nvptxcompiler", "nvjitlink", "pynvjitlink", or "ptxas" for
            another CUDA release.
        lto: Whether the cubin was optimised at link time.
        reason: Why that tool was chosen.
        flags: The exact arguments of the tool.
        inputs: The names of the inputs, in order.
        log: The messages of the tools, and the calls between PTX inputs that were not inlined.
        lowered_names: The symbol of each requested name expression.
        inlined: The calls between PTX inputs that were inlined.
        ptx: The PTX module that the cubin was compiled from, "" if a linker combined the inputs.
        sources: What was linked, compiled.
        options: The options of the link.
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
    sources: tuple[Input, ...] = field(default=(), repr=False, compare=False)
    options: Options | None = field(default=None, repr=False, compare=False)

    def kernel(self, name: str, *, device: Literal["cpu"] | None = None, checks: bool = True) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        On the CPU it is launched on NumPy arrays: `kernel[grid, block](x, numpy.int32(n))`. It is
        compiled by llvmlite from the PTX of the link, or from what link-time optimisation makes of the same
        inputs. That needs NumPy, and neither a device nor a driver.

        Kernels of one link share its variables, such as a `__device__` counter; on the CPU those with the
        same *checks*.

        Args:
            name: The kernel's symbol, or a requested name expression.
            device: "cpu" to run on the CPU, None on the GPU.
            checks: Whether each access to memory on the CPU is compared with the arrays that were passed and
                the memory that the code declares.

        Raises:
            LinkError: cuda-core is not installed. On the CPU: the inputs do not become one PTX.
            LaunchError: There is no driver, or it cannot be used. On the CPU: llvmlite is missing, or there
                is no such kernel.
        """
        symbol = self.lowered_names.get(name, name)
        if device is not None:
            if device != "cpu":
                raise LaunchError(f'device is {shown(device)}; pass "cpu", or None for the GPU.')
            # Deferred: most links are for a GPU.
            from numba_ptxlink import _cpu

            _cpu.require()
            from numba_ptxlink._cpu.host import PtxKernel
            from numba_ptxlink._cpu.run import CpuProgram

            program = self._once(("cpu", checks), lambda: CpuProgram.of(self.one_ptx(), checks=checks))
            return PtxKernel(program, symbol)
        try:
            from cuda.core import ObjectCode
        except ImportError as error:
            raise LinkError(
                f"Linked.kernel() loads by cuda-core ({error}); install it: python -m pip install cuda-core."
            ) from error
        from numba_ptxlink._tools import driver

        # Without one cuda.core fails in the middle of its own start.
        driver.require()
        from numba_ptxlink._cpu import device as cpu_device

        if cpu_device.is_active():
            return self._once(None, lambda: ObjectCode.from_ptx(self.one_ptx())).get_kernel(symbol)
        return self._once(None, lambda: ObjectCode.from_cubin(self.cubin)).get_kernel(symbol)

    def one_ptx(self) -> bytes:
        """
        Return the inputs of the link as one PTX module, with line numbers, which the CPU can run.

        Raises:
            LinkError: An input has no PTX.
        """
        from numba_ptxlink._tools.options import Options

        from .one_ptx import one_ptx

        return one_ptx(self.sources, self.arch, self.options or Options())

    def _once(self, how: object, load: Callable[[], Any]) -> Any:
        """Return the code of all kernels of this link, which share its variables."""
        loaded = vars(self).setdefault("_loaded", {})
        # Of two threads that load it at a time, both get what one has.
        return loaded[how] if how in loaded else loaded.setdefault(how, load())

    def __getstate__(self) -> dict[str, Any]:
        # What is loaded belongs to the process, and is neither copied nor pickled.
        return {name: value for name, value in vars(self).items() if name != "_loaded"}


def link(inputs: Sequence[Input], target: Target, options: Options) -> Linked:
    """
    Link *inputs*, none of them CUDA C++, to a cubin.

    Raises:
        LinkError: The inputs contradict each other, or the linker refused them. With the cure, where it is
            known.
        AssembleError: A single PTX could not be assembled.
        ConfigError: There is no such backend.
    """
    with _explaining(inputs):
        checked = check(inputs, target.arch, options)
        fusion = fuse(checked, target, options)
    while True:
        with _explaining(fusion.sources):
            link_plan = plan(fusion, target, options)
        log.info("%s", link_plan)
        with _explaining(fusion.sources, link_plan.tool.name):
            try:
                return _linked(link_plan, run(link_plan))
            except (AssembleError, LinkError) as error:
                other = _another(link_plan, error)
                if other is None:
                    raise
        fusion = other


def link_to_ptx(inputs: Sequence[Input], arch: Arch, options: Options) -> cache.Entry:
    """
    Return the PTX that link-time optimisation makes of *inputs*, with the log of that link.

    Raises:
        LinkError: nvJitLink refused the link, or the backend does not link.
    """
    with _explaining(inputs):
        checked = check(inputs, arch, options)
        link_plan = plan(Fusion.of(checked), Target(arch), options, ptx=True)
    log.info("%s", link_plan)
    with _explaining(inputs, link_plan.tool.name):
        return run(link_plan)


def compile_ptx(ptx: bytes, target: Target, options: Options) -> tuple[bytes, str]:
    """
    Return machine code of one PTX, and name and release of the tool that made it.

    Whatever NUMBA_PTXLINK_BACKEND says: the tool is one whose code the reader of *target* reads.

    Raises:
        AssembleError: The tool refused *ptx*, or there is none for the release of *target*. Carries its log.
    """
    options = options._replace(backend="auto", checks="none", inline="none")
    link_plan = plan(Fusion.of([Input(PTX, "code.ptx", ptx)]), target, options)
    log.info("%s", link_plan)
    if link_plan.compatibility_warning and options.relocatable:
        _, release = CURRENT_ENVIRONMENT.linker() or (None, (0, 0))
        log.warning(
            "%s, and no other tool compiles the PTX for %s; `pip install '%s'` installs a ptxas of that "
            "release",
            link_plan.compatibility_warning,
            target.arch.sm,
            find.package_of_ptxas(release),
        )
    try:
        entry = run(link_plan)
    except LinkError as error:
        raise converted(error, AssembleError) from error
    if link_plan.tool.name == "nvptxcompiler" and not options.relocatable:
        assembler.warn_of_undefined(ptx)
    return entry.code, link_plan.tool.of(link_plan.release)


def _another(failed: Plan, error: PtxlinkError) -> Fusion | None:
    """
    Return other inputs for a link that failed, None where there are none.

    They have the device runtime, which nvcc adds by default, where that is called and missing; or leave apart
    the PTX that became one, since an error then tells the cause in its terms. After one the other may follow.
    """
    fusion, options = failed.fusion, failed.options
    runtime = backends.device_runtime() if backends.lacks_runtime(error, fusion.sources) else None
    if runtime is not None:
        sources = (*fusion.sources, runtime)
        return fuse(sources, failed.target, options) if fusion.fused else Fusion.of(sources, fusion.reason)
    if not fusion.fused or (options.tool != "auto" and len(fusion.sources) > 1):
        return None
    cause = next(iter(re.findall(_ERROR, error.log)), str(error).partition("\n")[0])
    return Fusion.of(fusion.sources, f"refused as one: {cause}")


@contextmanager
def _explaining(sources: Sequence[Input], tool: str = "") -> Iterator[None]:
    """Let errors of a `with` block tell what helps."""
    try:
        yield
    except (AssembleError, LinkError) as error:
        from .explain import explained

        raise explained(error, sources, tool) from error


def run(link_plan: Plan) -> cache.Entry:
    """
    Return the machine code, or PTX, of the plan *link_plan* and the tool's log, from the cache or the tool.

    Raises:
        LinkError: nvJitLink refused the link.
        AssembleError: A single PTX could not be assembled.
    """
    if link_plan.tool.name == "nvptxcompiler":
        return assembler.compile_ptx(link_plan.inputs[0].code, link_plan.target.arch, link_plan.flags)
    return _by_ptxas(link_plan) if link_plan.tool.name == "ptxas" else _by_linker(link_plan)


def _linked(link_plan: Plan, entry: cache.Entry) -> Linked:
    fusion = link_plan.fusion
    alone = len(link_plan.inputs) == 1 and link_plan.inputs[0].kind == PTX
    if entry.log:
        log.info("%s: %s", ", ".join(link_plan.names), entry.log.strip())
    if fusion.remarks:
        log.info("%s", fusion.remarks)
    return Linked(
        entry.code,
        link_plan.target.arch,
        link_plan.tool.name,
        link_plan.options.lto,
        link_plan.reason,
        link_plan.flags,
        link_plan.names,
        "\n".join(filter(None, (entry.log, fusion.remarks))),
        inlined=fusion.inlined,
        ptx=link_plan.inputs[0].text.rstrip("\0") if alone else "",
        sources=fusion.sources,
        options=link_plan.options,
    )


def _by_ptxas(link_plan: Plan) -> cache.Entry:
    from numba_ptxlink._tools import programs

    path, _ = cast("tuple[str, Any]", programs.newest_ptxas(link_plan.release or (0, 0)))
    (ptx,) = link_plan.inputs
    key = cache.Key.of(
        "assemble",
        {
            "package": cache.package_version(),
            "tool": ("ptxas", programs.version_text(path)),
            "flags": link_plan.flags,
            "ptx": ptx.code,
        },
    )
    return cache.cached(
        key, lambda: cache.Entry({"log": ""}, programs.compile_ptx(path, ptx.code, link_plan.flags))
    )


def _by_linker(link_plan: Plan) -> cache.Entry:
    from numba_ptxlink._tools import nvjitlink

    path = backends.linker(link_plan.tool.name).library()
    contents = [(source.kind, source.name, source.code) for source in link_plan.inputs]

    def make() -> cache.Entry:
        product = nvjitlink.link(contents, link_plan.flags, path=path)
        said = "\n".join(filter(None, (product.info_log, product.error_log)))
        wrong = [line for line in product.error_log.splitlines() if line.startswith("error")]
        if link_plan.options.compares and wrong:
            # nvJitLink returns success here.
            raise _failure(link_plan, "linked wrongly", product.error_log)
        new = [name for name in re.findall(_MADE, product.info_log) if _holds(product.code, name)]
        if new:
            undefined = "\n".join(f"error   : Undefined reference to '{name}'" for name in new)
            raise _failure(link_plan, "made variables of its own", undefined)
        return cache.Entry({"log": said}, product.code)

    # What nvJitLink links wrongly answers for no link that compares.
    key = nvjitlink.key(contents, link_plan.flags, path=path, unread=not link_plan.options.compares)
    return cache.cached(key, make)


def _holds(cubin: bytes, name: str) -> bool:
    """Return whether *cubin* defines the variable: shared memory that a launch sizes is only declared."""
    from numba_ptxlink._formats import elf

    return any(each.name == name and each.kind == "variable" for each in elf.read(cubin).symbols)


def _failure(link_plan: Plan, action: str, text: str) -> LinkError:
    names = ", ".join(link_plan.names)
    return LinkError(
        f"nvJitLink {action}: {names}.\n{text.strip()}\nFlags: {' '.join(link_plan.flags)}.",
        flags=link_plan.flags,
        inputs=link_plan.names,
        log=text,
    )
