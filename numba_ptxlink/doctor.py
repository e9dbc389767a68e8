"""Diagnose the environment: the installed tools, the state of the plugin, and problems with their cures."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from . import _native, _plugin
from ._arch import dotted, newest_isa
from ._config import config, unknown_variables
from ._cpu import device
from ._formats.ptx import read_header
from ._front_end import registry
from ._front_end.activation import switch
from ._link.backends import WRONG_STRUCTS_RELEASE
from ._tools import (
    driver,
    find,
    host_compiler,
    nvfatbin,
    nvjitlink,
    nvptxcompiler,
    nvrtc,
    nvvm,
)
from ._tools.toolchain import toolchain
from .errors import PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ._tools.toolchain import Toolchain

__all__ = ["Component", "Diagnosis", "Problem", "diagnose", "driver_can_load_ptx"]

_DEFAULT_ACTIVATION_CURE = (
    "install the package with pip, import numba_ptxlink first, or call numba_ptxlink.enable()"
)
# The tools of a toolkit, by their names in `find`: the module, and the effect if it is missing.
_LIBRARIES: dict[str, tuple[Any, str]] = {
    "nvJitLink": (nvjitlink, "links of LTO-IR, cubins, objects and debug information fail"),
    "nvrtc": (nvrtc, "neither CUDA C++ nor a Python function is compiled"),
    "nvvm": (nvvm, "no Python function is compiled"),
    "nvfatbin": (nvfatbin, "exports make no fat binaries, kernels and objects"),
}


@dataclass(frozen=True)
class Component:
    """
    A tool, library or package.

    Args:
        name: The name.
        version: The version; "" if it is missing.
        where: The file that it was loaded from, or its provider, such as "installed package"; "" if it is
            missing.
    """

    name: str
    version: str
    where: str


@dataclass(frozen=True)
class Problem:
    """
    A defect of the environment.

    Args:
        code: The kind of problem, such as "tool-missing".
        what: The failure and its effect.
        cure: The action that resolves it.
    """

    code: str
    what: str
    cure: str


@dataclass(frozen=True)
class Diagnosis:
    """
    The state of this environment.

    Args:
        components: The tools, and the installed packages.
        active: Whether a front end links through this package in this process, after the front ends are
            imported.
        reason: The reason why it does, or does not.
        trigger: The event that decided, as in `Status`; "" before any decision.
        front_ends: The state in each front end, as in `Status`.
        driver_isa: The newest PTX ISA that the driver's own compiler reads; "" without a driver, and for a
            driver of a release that this package does not know.
        problems: The defects; empty if there are none.
        system: Descriptions, with the keys "operating system" and "Python".
    """

    components: tuple[Component, ...]
    active: bool
    reason: str
    trigger: str
    front_ends: tuple[_plugin.FrontEndStatus, ...]
    driver_isa: str
    problems: tuple[Problem, ...]
    system: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a dict that JSON can represent."""
        return {**asdict(self), "front_ends": [status._asdict() for status in self.front_ends]}


def driver_can_load_ptx(ptx: str | bytes) -> bool:
    """
    Return whether the driver's own compiler reads the ISA version that *ptx* declares.

    Neither creates a context nor initialises CUDA. False without a driver, and for text without a `.version`.
    The `.target` of the PTX, which has to fit the device, is not checked. The version that a driver reads is
    looked up in a table from the release notes in NVIDIA's PTX ISA manual.

    Args:
        ptx: A PTX module.
    """
    text = ptx.decode(errors="replace") if isinstance(ptx, bytes) else ptx
    declared_isa = read_header(text).version
    driver_release = driver.version()
    if declared_isa is None or driver_release is None:
        return False
    newest = newest_isa(driver_release)
    # A driver newer than this package's table reads every ISA version in the table.
    return newest is None or declared_isa <= newest


def diagnose() -> Diagnosis:
    """Diagnose this environment. Imports the front ends, as a program would; needs no GPU and no driver."""
    # The first call in a process sets up logging.
    config()
    import_problems = _import_front_ends()
    status, tools = _plugin.status(), toolchain()
    # A failed import explains more than the state of the plugin.
    reason = status.reason
    if import_problems and not status.active:
        reason = next(iter(import_problems.values())).what
    return Diagnosis(
        components=tuple(_components(tools)),
        active=status.active,
        reason=reason,
        trigger=status.trigger or "",
        front_ends=tuple(
            state._replace(reason=import_problems[state.name].what)
            if state.name in import_problems
            else state
            for state in status.front_ends
        ),
        driver_isa=str((tools.driver and newest_isa(tools.driver)) or ""),
        problems=(
            *_unknown_variables(),
            *_front_end_problems(status, import_problems),
            *_missing_tools(),
            *_mixed_tools(tools),
            *_driver_problems(tools),
        ),
        system={
            "operating system": platform.platform(),
            "Python": f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}",
        },
    )


def _unknown_variables() -> Iterator[Problem]:
    """Yield the environment variables whose names are misspelt."""
    for name, cure in unknown_variables(os.environ):
        yield Problem("unknown-variable", f"the environment variable {name} has no effect", cure)


def _components(tools: Toolchain) -> Iterator[Component]:
    """Yield the compilers and linkers, the driver, and the installed packages."""
    yield Component("nvPTXCompiler", dotted(tools.nvptxcompiler), _native.location() or "")
    for library in _LIBRARIES:
        # `Toolchain` has a field for each library, in lower case.
        version = getattr(tools, library.lower())
        where = find.library(library) if version else ""
        yield Component(find.LIBRARIES[library], dotted(version), where)
    # `toolkits` leaves out this environment's libNVVM, and raises an error if this environment has none.
    for nvvm_library in nvvm.toolkits() if tools.nvvm else ():
        yield Component("libNVVM of a toolkit", dotted(nvvm_library.release), nvvm_library.path)
    # If the CPU is the CUDA device of this process, describe it in place of the driver's file.
    where = device.description() if device.is_active() else "libcuda.so.1"
    yield Component("driver", dotted(tools.driver), where if tools.driver else "")
    for package, package_version in tools.packages.items():
        yield Component(package, package_version, "installed package")


def _import_front_ends() -> dict[str, Problem]:
    """Import the modules that the front ends' patches need; return the failures, by front end."""
    import_problems = {}
    for front_end in filter(registry.is_installed, registry.front_ends()):
        try:
            # The package first, as programs do: threads that import a package and its module in opposite
            # orders deadlock.
            importlib.import_module(front_end.package)
            importlib.import_module(front_end.trigger_module)
        except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
            explained_error = error if isinstance(error, PtxlinkError) else find.missing_library_error(error)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            failure = f"{front_end.package} cannot be imported ({type(error).__name__}: {reason})"
            cure = f"repair {front_end.name}, such as with `pip install 'numba-ptxlink[{front_end.extra}]'`"
            if unsupported := front_end.unsupported_reason():
                unsupported, cure = _reason_and_cure(unsupported)
                failure = f"{unsupported}: {failure}"
            elif explained_error is not None:
                cure = _reason_and_cure(explained_error)[1]
            import_problems[front_end.name] = Problem("front-end-broken", failure, cure)
    return import_problems


def _front_end_problems(status: _plugin.Status, import_problems: Mapping[str, Problem]) -> Iterator[Problem]:
    """Yield the front ends that are missing, cannot be imported, or do not have an active plugin."""
    front_ends = registry.front_ends()
    installed_names = [front_end.name for front_end in front_ends if registry.is_installed(front_end)]
    if not installed_names:
        extras = " or ".join(f"'numba-ptxlink[{front_end.extra}]'" for front_end in front_ends)
        yield Problem(
            "no-front-end",
            "no compiler for Python functions is installed: export() and kernels fail",
            f"python -m pip install {extras}",
        )
    for state in status.front_ends:
        if state.name in import_problems:
            yield import_problems[state.name]
        elif state.name in installed_names and not state.active and (cure := _activation_cure(state.reason)):
            yield Problem("not-active", f"the plugin is not active in {state.name}: {state.reason}", cure)
    # If there is a hook, the import of a front end activates the plugin before the entry point is called.
    if status.active and status.trigger == "entry point":
        yield Problem(
            "no-hook",
            "the import hook is not installed, so programs that compile only kernels do not activate the "
            "plugin",
            _DEFAULT_ACTIVATION_CURE,
        )


def _activation_cure(reason: str) -> str:
    """Return the cure if the plugin is not active for *reason*; "" if NUMBA_PTXLINK=auto has decided that."""
    # `switch.enabled` is True after enable(), False after disable(), and None before any of these calls.
    if switch.enabled is False:
        return "call numba_ptxlink.enable()"
    if switch.enabled is None and config().mode == "0":
        return "unset NUMBA_PTXLINK, or call numba_ptxlink.enable()"
    if switch.enabled is None and config().mode == "auto":
        return ""
    return _reason_and_cure(reason)[1] or _DEFAULT_ACTIVATION_CURE


def _reason_and_cure(message: object) -> tuple[str, str]:
    """Split an error's *message* into the reason and the cure after its last semicolon, "" without one."""
    reason, separator, cure = str(message).removesuffix(".").rpartition("; ")
    return (reason, cure) if separator else (cure, "")


def _missing_tools() -> Iterator[Problem]:
    """Yield the compilers and linkers that are not installed."""
    for tool, effect in ((nvptxcompiler, "PTX is not assembled"), *_LIBRARIES.values()):
        try:
            tool.version()
        except PtxlinkError as error:
            reason, cure = _reason_and_cure(error)
            yield Problem("tool-missing", f"{reason}: {effect}", cure)


def _mixed_tools(tools: Toolchain) -> Iterator[Problem]:
    """Yield a problem for each tool that does not read the code of another one, or that has a known fault."""
    linker_release, assembler_release = tools.nvjitlink, tools.nvptxcompiler
    upgrade_cure = f"upgrade together: {find.install_command()} --upgrade"
    for name, compiler_release in (("NVRTC", tools.nvrtc), ("NVVM", tools.nvvm)):
        if _is_newer(compiler_release, linker_release):
            failure = (
                f"nvJitLink {dotted(linker_release)} does not read the LTO-IR of {name} "
                f"{dotted(compiler_release)}"
            )
            yield Problem("nvjitlink-older", failure, upgrade_cure)
    if _is_newer(tools.nvvm, assembler_release):
        failure = (
            f"nvPTXCompiler {dotted(assembler_release)} does not read the PTX of NVVM {dotted(tools.nvvm)}"
        )
        yield Problem("nvptxcompiler-older", failure, "python -m pip install --upgrade numba-ptxlink")
    if linker_release == WRONG_STRUCTS_RELEASE:
        yield Problem(
            "nvjitlink-structs",
            "nvJitLink 13.0 passes some structs of more than 128 bytes wrongly where it links PTX or cubins",
            "python -m pip install --upgrade nvidia-nvjitlink",
        )
    nvcc_release = host_compiler.nvcc_release()
    if nvcc_release and (missing_path := host_compiler.missing_libnvvm()):
        yield Problem(
            "nvcc-lto",
            f"nvcc -dlto fails, since {missing_path} is missing",
            _libnvvm_cure(missing_path, nvcc_release),
        )
    # NVVM makes the LTO-IR of an export, and nvJitLink or nvPTXCompiler the machine code.
    if any(_is_newer(writer, nvcc_release) for writer in (tools.nvvm, linker_release or assembler_release)):
        release = dotted(nvcc_release)
        yield Problem(
            "nvcc-older",
            f"nvcc is of CUDA {release}, and does not read the code of exports, which is newer",
            f"export for that release, by cuda={release!r} or --cuda {release}",
        )


def _libnvvm_cure(missing_path: Path, nvcc_release: tuple[int, int]) -> str:
    """Return the command that puts libNVVM at *missing_path*, from which nvcc of *nvcc_release* loads it."""
    # The path is TOOLKIT/nvvm/lib64/libnvvm.so.
    toolkit, release = missing_path.parents[2], dotted(nvcc_release)
    libraries = (path for folder in ("lib", "lib64") for path in toolkit.glob(f"{folder}/libnvvm.so*"))
    library = next(libraries, None)
    if library is None:
        package = find.package_name("nvidia-nvvm", nvcc_release[0])
        return f"install {package} {release} in {toolkit}, or all of CUDA {release}"
    commands = ("mkdir", "-p", str(missing_path.parent)), ("ln", "-s", str(library), str(missing_path))
    return f"run `{' && '.join(map(shlex.join, commands))}`"


def _is_newer(writer: tuple[int, int] | None, reader: tuple[int, int] | None) -> bool:
    """Return whether CUDA release *writer* emits newer PTX than *reader* reads; False if one is unknown."""
    emitted_isa = writer and newest_isa(writer)
    newest_read_isa = reader and newest_isa(reader)
    return bool(emitted_isa and newest_read_isa and emitted_isa > newest_read_isa)


def _driver_problems(tools: Toolchain) -> Iterator[Problem]:
    """Yield a problem if the driver is too old for the cubins of the installed tools."""
    if tools.driver is None:
        return
    # If the cubins of nvPTXCompiler are too new for the driver, nvJitLink makes them, and may be older: the
    # older tool counts.
    cubin_release = min(filter(None, (tools.nvjitlink, tools.nvptxcompiler)), default=tools.driver)
    if cubin_release[0] > tools.driver[0]:
        yield Problem(
            "driver-older",
            f"the driver (CUDA {dotted(tools.driver)}) loads no cubins of CUDA {dotted(cubin_release)}: "
            "kernels fail",
            "upgrade the driver, or install the tools of its own major version in a new environment: "
            f"{find.install_command(tools.driver[0])}",
        )
