"""
Run a plan: assemble or link, and cache the result, without a driver.

`link` takes the steps of a link whose sources are compiled already: check, fuse, plan, run. Each step is a
function that takes the result of the step before. `numba_ptxlink.link` and the linkers of the front ends call
`link`.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from numba_ptxlink import assembler, cache
from numba_ptxlink._arch import dotted
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AssembleError, LaunchError, LinkError, convert_error, short_repr

from . import backends
from .backends import CURRENT_ENVIRONMENT, Target
from .check import check_inputs
from .fuse import Fusion, fuse
from .plan import plan
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cpu.checks import CpuChecks
    from numba_ptxlink._tools.options import Options
    from numba_ptxlink.errors import PtxlinkError

    from .plan import Plan

log = logging.getLogger(__name__)

# The message of an error in a tool's log, without the file and line before it.
_ERROR = r"(?:error|fatal)\s*: (.+)"
# nvJitLink's message for an undefined variable. If all inputs are LTO-IR, it defines the variable as zeros.
_DEFINED_AS_ZEROS = r"Unresolved extern variable '([^']+)' in whole program"


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
        inlined: The number of calls between PTX inputs that were inlined.
        ptx: The PTX module that the cubin was compiled from; "" if a linker combined the inputs.
        sources: The inputs after compilation, in order.
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

    def kernel(self, name: str, *, device: Literal["cpu"] | None = None, checks: CpuChecks = True) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        On the CPU, the kernel is launched on NumPy arrays: `kernel[grid, block](x, numpy.int32(n))`. llvmlite
        compiles it from the PTX of the link; LTO-IR becomes PTX by link-time optimisation. NumPy is needed,
        but neither a device nor a driver.

        Kernels of one link share its variables, such as a `__device__` counter; on the CPU, only kernels with
        the same *checks* do.

        Args:
            name: The kernel's symbol, or a requested name expression.
            device: "cpu" to run on the CPU, None on the GPU.
            checks: The checks on the CPU: True for memcheck, which compares each access to memory with the
                arrays that were passed and the memory that the code declares; False for none; or a tuple of
                "memcheck", "initcheck", "racecheck" and "synccheck".

        Raises:
            LinkError: cuda-core is not installed. On the CPU: the inputs cannot be linked to one PTX.
            LaunchError: There is no driver, or it cannot be used. On the CPU: llvmlite is missing, or there
                is no such kernel.
        """
        symbol = self.lowered_names.get(name, name)
        if device is not None:
            if device != "cpu":
                raise LaunchError(f'device is {short_repr(device)}; pass "cpu", or None for the GPU.')
            # Deferred: most links are for a GPU.
            from numba_ptxlink import _cpu

            _cpu.require_packages()
            from numba_ptxlink._cpu.checks import parse as parse_checks
            from numba_ptxlink._cpu.host import PtxKernel
            from numba_ptxlink._cpu.run import CpuProgram

            names = parse_checks(checks)
            program = self._once(("cpu", names), lambda: CpuProgram.of(self.one_ptx(), checks=names))
            return PtxKernel(program, symbol)
        try:
            from cuda.core import ObjectCode
        except ImportError as error:
            raise LinkError(
                f"Linked.kernel() loads by cuda-core ({error}); install it: python -m pip install cuda-core."
            ) from error
        from numba_ptxlink._tools import driver

        # Without a driver, cuda.core fails with a message that does not name the cause.
        driver.require()
        from numba_ptxlink._cpu import device as cpu_device

        # If the CPU is the CUDA device of this process, its driver loads PTX, and no cubins.
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

    def _once(self, key: object, load: Callable[[], Any]) -> Any:
        """
        Return the loaded code of this link, whose kernels share its variables.

        Args:
            key: ("cpu", checks), or None for the CUDA device.
            load: Loads the code at the first call with *key*.
        """
        loaded = vars(self).setdefault("_loaded", {})
        # If two threads load the code at once, `setdefault` gives both the same object.
        return loaded[key] if key in loaded else loaded.setdefault(key, load())

    def __getstate__(self) -> dict[str, Any]:
        # Loaded code belongs to the process, and is neither copied nor pickled.
        return {name: value for name, value in vars(self).items() if name != "_loaded"}


def link(inputs: Sequence[Input], target: Target, options: Options) -> Linked:
    """
    Link *inputs*, none of them CUDA C++, to a cubin.

    Raises:
        LinkError: The inputs contradict each other, or the linker rejected them. Names the cure if it is
            known.
        AssembleError: A single PTX could not be assembled.
        ConfigError: There is no such backend.
    """
    with _adding_cures(inputs):
        checked = check_inputs(inputs, target.arch, options)
        fusion = fuse(checked, target, options)
    while True:
        with _adding_cures(fusion.sources):
            link_plan = plan(fusion, target, options)
        log.info("%s", link_plan)
        with _adding_cures(fusion.sources, link_plan.tool.name):
            try:
                # The link ends here, or is repeated with the inputs of a retry.
                return _result(link_plan, run(link_plan))
            except (AssembleError, LinkError) as error:
                retry = _retry_inputs(link_plan, error)
                if retry is None:
                    raise
                fusion = retry


def link_to_ptx(inputs: Sequence[Input], arch: Arch, options: Options) -> cache.Entry:
    """
    Return the PTX that link-time optimisation makes of *inputs*, with the log of that link.

    Raises:
        LinkError: nvJitLink rejected the link, or the backend does not link.
    """
    with _adding_cures(inputs):
        checked = check_inputs(inputs, arch, options)
        link_plan = plan(Fusion.unmerged(checked), Target(arch), options, makes_ptx=True)
    log.info("%s", link_plan)
    with _adding_cures(inputs, link_plan.tool.name):
        return run(link_plan)


def compile_one_ptx(ptx: bytes, target: Target, options: Options) -> tuple[bytes, str]:
    """
    Return machine code of one PTX, and the name and release of the tool that made it.

    NUMBA_PTXLINK_BACKEND is ignored: the tool is the first one whose code the driver or linker of *target*
    reads.

    Raises:
        AssembleError: The tool rejected *ptx*, or there is no tool for the release of *target*. The error has
            the log.
    """
    options = options._replace(backend="auto", checks="none", inline="none")
    link_plan = plan(Fusion.unmerged([Input(PTX, "code.ptx", ptx)]), target, options)
    log.info("%s", link_plan)
    if link_plan.compatibility_warning and options.relocatable:
        # Relocatable code has this warning only if a linker is installed: (0, 0) is never used.
        _, release = CURRENT_ENVIRONMENT.linker() or (None, (0, 0))
        log.warning(
            "%s, and no other tool compiles the PTX for %s; `pip install '%s'` installs the ptxas of CUDA %s",
            link_plan.compatibility_warning,
            target.arch.sm,
            find.package_of_ptxas(release),
            dotted(release),
        )
    try:
        entry = run(link_plan)
    except LinkError as error:
        raise convert_error(error, AssembleError) from error
    if link_plan.tool.name == "nvptxcompiler" and not options.relocatable:
        assembler.warn_of_undefined_variables(ptx)
    return entry.code, link_plan.tool.title(link_plan.release)


def _retry_inputs(failed: Plan, error: PtxlinkError) -> Fusion | None:
    """
    Return other inputs for a link that failed; None if there is nothing else to try.

    Retry 1: add the missing device runtime (cudadevrt), as nvcc does. Retry 2: link the PTX inputs unmerged,
    so that errors name the user's inputs.
    """
    fusion, options = failed.fusion, failed.options
    runtime = backends.device_runtime() if backends.lacks_runtime(error, fusion.sources) else None
    if runtime is not None:
        sources = (*fusion.sources, runtime)
        return (
            fuse(sources, failed.target, options)
            if fusion.merged_names
            else Fusion.unmerged(sources, fusion.summary)
        )
    # Inputs are merged only for "auto" and for nvPTXCompiler, which cannot link several inputs unmerged.
    if not fusion.merged_names or (options.tool != "auto" and len(fusion.sources) > 1):
        return None
    cause = next(iter(re.findall(_ERROR, error.log)), str(error).partition("\n")[0])
    return Fusion.unmerged(fusion.sources, f"the tool rejected the combined PTX: {cause}")


@contextmanager
def _adding_cures(sources: Sequence[Input], tool: str = "") -> Iterator[None]:
    """
    Add a cure to the link errors of a `with` block.

    Args:
        sources: The inputs as the user passed them.
        tool: The tool that runs in the block; "" if none runs.
    """
    try:
        yield
    except (AssembleError, LinkError) as error:
        from .explain import with_cure

        raise with_cure(error, sources, tool) from error


def run(link_plan: Plan) -> cache.Entry:
    """
    Return the machine code, or PTX, of *link_plan* and the tool's log, from the cache or the tool.

    Raises:
        LinkError: nvJitLink rejected the link.
        AssembleError: A single PTX could not be assembled.
    """
    if link_plan.tool.name == "nvptxcompiler":
        return assembler.compile_ptx(link_plan.inputs[0].code, link_plan.target.arch, link_plan.flags)
    return _run_ptxas(link_plan) if link_plan.tool.name == "ptxas" else _run_linker(link_plan)


def _result(link_plan: Plan, entry: cache.Entry) -> Linked:
    """Log the messages of a link, and return its result: the code and the log of *entry*, and the rest."""
    fusion = link_plan.fusion
    is_single_ptx = len(link_plan.inputs) == 1 and link_plan.inputs[0].kind == PTX
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
        inlined=fusion.inlined_calls,
        ptx=link_plan.inputs[0].text.rstrip("\0") if is_single_ptx else "",
        sources=fusion.sources,
        options=link_plan.options,
    )


def _run_ptxas(link_plan: Plan) -> cache.Entry:
    """Assemble the single PTX of *link_plan* by the newest ptxas up to the planned release."""
    from numba_ptxlink._tools import programs

    # The plan has the release of an installed ptxas, so that `newest_ptxas` finds one.
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
        key, lambda: cache.Entry({"log": ""}, programs.run_ptxas(path, ptx.code, link_plan.flags))
    )


def _run_linker(link_plan: Plan) -> cache.Entry:
    """Link by nvJitLink; refuse a cubin that it returned in spite of errors or undefined variables."""
    from numba_ptxlink._tools import nvjitlink

    path = backends.linker_module(link_plan.tool.name).library()
    contents = [(source.kind, source.name, source.code) for source in link_plan.inputs]

    def make() -> cache.Entry:
        product = nvjitlink.link(contents, link_plan.flags, path=path)
        names = ", ".join(link_plan.names)
        # nvJitLink returns success although it has logged errors, or a variable is undefined.
        if link_plan.options.checks_inputs and re.search("^error", product.error_log, re.MULTILINE):
            raise _failure(
                link_plan,
                f"nvJitLink logged errors but returned a cubin for {names}, which is discarded; correct the "
                f"inputs.\n{product.error_log.strip()}",
                product.error_log,
            )
        unresolved = re.findall(_DEFINED_AS_ZEROS, product.info_log)
        if variables := [name for name in unresolved if _has_variable(product.code, name)]:
            # `explain` finds the names in this log. That of nvJitLink may also name dynamic shared memory.
            raise _failure(
                link_plan,
                f"No input of {names} defines {', '.join(map(repr, variables))}; add the input that does "
                "(nvJitLink would use zeros).",
                "\n".join(f"error   : Undefined reference to '{name}'" for name in variables),
            )
        tool_log = "\n".join(filter(None, (product.info_log, product.error_log)))
        return cache.Entry({"log": tool_log}, product.code)

    # Links with and without checks have separate entries: only checks="none" accepts a cubin that nvJitLink
    # logged errors for.
    key = nvjitlink.key(contents, link_plan.flags, path=path, unchecked=not link_plan.options.checks_inputs)
    return cache.cached(key, make)


def _has_variable(cubin: bytes, name: str) -> bool:
    """
    Return whether *cubin* has the variable *name*.

    Dynamic shared memory, which no input has to define, is no variable of a cubin.
    """
    from numba_ptxlink._formats import elf

    return any(symbol.name == name and symbol.kind == "variable" for symbol in elf.read(cubin).symbols)


def _failure(link_plan: Plan, message: str, tool_log: str) -> LinkError:
    """Return the error of *link_plan* with its flags."""
    return LinkError(
        f"{message}\nFlags: {' '.join(link_plan.flags)}.",
        flags=link_plan.flags,
        inputs=link_plan.names,
        log=tool_log,
    )
