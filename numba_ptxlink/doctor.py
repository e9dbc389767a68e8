"""Diagnose the environment: installed tools, activation, compatibility of the tools, problems and cures."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _plugin
from ._arch import Arch
from ._config import config
from ._formats import ltoir
from ._formats.kinds import LTOIR
from ._formats.ptx import read_header
from ._formats.ptx.isa import newest_isa, release_of
from ._front_end import registry
from ._link.checks import LOSES_STRUCTS
from ._tools import driver, host_compiler, machine, nvjitlink, nvrtc, nvvm, packages, pynvjitlink
from ._tools.compilers import Compiler, compilers
from ._tools.toolchain import toolchain
from .errors import PtxlinkError
from .inspection import find_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._arch import PtxVersion
    from ._tools.toolchain import Toolchain

__all__ = ["Ability", "Compiler", "Component", "Diagnosis", "Problem", "diagnose", "driver_can_load_ptx"]

_NO_NVRTC = "Numba compiles nothing without NVRTC"
_INSTALL = "install the package with pip, import numba_ptxlink first, or call numba_ptxlink.enable()"
# By words of the reason; the first that are in it count.
_CURES = (
    ("is unknown", "set the variable to a value that the message names, or unset it"),
    ("is damaged", "install numba-ptxlink again, as the message says"),
    (
        "NUMBA_PTXLINK=auto",
        "none needed: auto stays off where the driver is new enough; NUMBA_PTXLINK=1 turns it on",
    ),
    ("NUMBA_PTXLINK=", "unset NUMBA_PTXLINK, or call numba_ptxlink.enable()"),
    ("before numba.cuda", "import both packages in the order that the reason names"),
    ("simulator", "unset NUMBA_ENABLE_CUDASIM to run on a device"),
    ("not supported", "install the release that the message names, or a newer numba-ptxlink"),
    ("lacks", "install the release that the message names, or a newer numba-ptxlink"),
)
_SAMPLE = 'extern "C" __device__ int f(int a) { return a; }\n'


@dataclass(frozen=True)
class Component:
    """
    One tool or library.

    Args:
        name: The name of the tool or library.
        version: Its version, "" if it is missing.
        where: The file it was loaded from, or its provider.
    """

    name: str
    version: str
    where: str


@dataclass(frozen=True)
class Ability:
    """
    Whether one tool accepts the output of another.

    Args:
        what: Both tools and the format that passes between them.
        able: Whether it works.
        why: The versions that determine it.
        stock: The behaviour of Numba alone with the same tools.
    """

    what: str
    able: bool
    why: str
    stock: str = ""


@dataclass(frozen=True)
class Problem:
    """
    A defect of the environment.

    Args:
        what: The failure, and the programs it affects.
        cure: The action that resolves it.
    """

    what: str
    cure: str


@dataclass(frozen=True)
class Diagnosis:
    """
    The state of this environment.

    Args:
        components: Every tool that takes part.
        compilers: The architectures and PTX versions of each compiler and linker that can be loaded.
        active: Whether a front end links through this package in a fresh process like this one.
        reason: Why, or why not.
        trigger: The event that decided it.
        front_ends: The state in each front end, as in `Status`.
        driver_isa: The newest PTX ISA that the driver's own compiler reads, "" without a driver.
        abilities: The compatibility of each pair of tools.
        problems: The defects; empty if there are none.
        system: Operating system, Python, CPU and locale, by these names.
    """

    components: tuple[Component, ...]
    compilers: tuple[Compiler, ...]
    active: bool
    reason: str
    trigger: str
    front_ends: tuple[_plugin.FrontEndStatus, ...]
    driver_isa: str
    abilities: tuple[Ability, ...]
    problems: tuple[Problem, ...]
    system: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a dict that JSON can represent."""
        return {**asdict(self), "front_ends": [each._asdict() for each in self.front_ends]}


def driver_can_load_ptx(ptx: str | bytes) -> bool:
    """
    Return whether the driver's own compiler reads the ISA version that *ptx* declares.

    Neither creates a context nor initialises CUDA; False without a driver, and for text without a `.version`.
    The `.target` of the PTX, which decides whether it suits the device, is not checked. The
    versions are those of the release notes in NVIDIA's PTX ISA manual.

    Args:
        ptx: One PTX module.
    """
    text = ptx.decode(errors="replace") if isinstance(ptx, bytes) else ptx
    declared, supported = read_header(text).version, driver.version()
    if declared is None or supported is None:
        return False
    newest = newest_isa(supported)
    # A driver newer than this package's table reads every ISA version in the table.
    return newest is None or declared <= newest


def diagnose() -> Diagnosis:
    """
    Diagnose this environment. Imports the front ends, as a program would; needs neither a GPU nor a driver.

    Raises:
        AssembleError: The package is not built.
    """
    config()
    broken = _import_front_ends()
    status, tools = _plugin.status(), toolchain()
    driver_isa = newest_isa(tools.driver) if tools.driver else None
    abilities = tuple(_abilities(tools, driver_isa))
    return Diagnosis(
        components=tuple(_components(tools)),
        compilers=tuple(compilers()),
        active=status.active,
        reason=status.reason if status.active or not broken else next(iter(broken.values())).what,
        trigger=status.trigger or "",
        front_ends=tuple(
            each._replace(reason=broken[each.name].what if each.name in broken else each.reason)
            for each in status.front_ends
        ),
        driver_isa=str(driver_isa or ""),
        abilities=abilities,
        problems=tuple(_problems(tools, status, abilities, broken)),
        system=machine.describe(),
    )


def _import_front_ends() -> dict[str, Problem]:
    """Import the modules that the import hook waits for; return why that failed, by the front ends' names."""
    broken = {}
    for front_end in filter(registry.installed, registry.front_ends()):
        try:
            # As every program does: two threads that enter a package from its two ends cannot both go on.
            importlib.import_module(front_end.package)
            importlib.import_module(front_end.driver)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the finding
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            what = f"{front_end.package} cannot be imported ({type(error).__name__}: {said})"
            cure = f"repair {front_end.name}, such as with `pip install 'numba-ptxlink[{front_end.extra}]'`"
            if packages.explained(error) is not None:
                cure = packages.install()
            broken[front_end.name] = Problem(what, cure)
    return broken


def _components(tools: Toolchain) -> Iterator[Component]:
    from ._native import _nvptxcompiler

    yield Component("nvPTXCompiler", _dotted(tools.nvptxcompiler), str(_nvptxcompiler.__file__))
    for name, library, version in (
        ("nvJitLink", "nvJitLink", tools.nvjitlink),
        ("NVRTC", "nvrtc", tools.nvrtc),
        ("nvFatbin", "nvfatbin", tools.nvfatbin),
        ("NVVM", "nvvm", _nvvm_version(tools)),
    ):
        yield Component(name, _dotted(version), _library(library))
    yield Component("pynvjitlink", *_pynvjitlink_found())
    yield Component("driver", _dotted(tools.driver), "libcuda.so.1" if tools.driver else "")
    yield Component("nvdisasm", "present" if find_tool("nvdisasm") else "", find_tool("nvdisasm") or "")
    for package, number in tools.packages.items():
        yield Component(package, number, "installed package")


def _pynvjitlink_found() -> tuple[str, str]:
    try:
        return _dotted(pynvjitlink.version()), "pynvjitlink-cu12"
    except PtxlinkError:
        return "", "optional, for CUDA 12"


def _library(name: str) -> str:
    from cuda import pathfinder

    try:
        return str(pathfinder.load_nvidia_dynamic_lib(name).abs_path or "")
    except Exception:  # noqa: BLE001 - pathfinder raises a different type for each way of not finding it
        return ""


def _package_version(tools: Toolchain, package: str) -> tuple[int, int] | None:
    try:
        major, minor = tools.packages[package].split(".")[:2]
    except (KeyError, ValueError):
        return None
    return (int(major), int(minor))


def _nvvm_version(tools: Toolchain) -> tuple[int, int] | None:
    folder, library = packages.location("nvidia-nvvm"), _library("nvvm")
    if folder is not None and library and Path(library).resolve().is_relative_to(folder):
        return _package_version(tools, packages.package("nvidia-nvvm"))
    # Another one is loaded than the package's. It has no function for its release, which its PTX tells.
    try:
        emitted = nvvm.emitted_isa(Arch(9, 0))
    except PtxlinkError:
        return None
    return None if emitted is None else release_of(emitted)


def _abilities(tools: Toolchain, driver_isa: PtxVersion | None) -> Iterator[Ability]:
    compiler = _nvvm_version(tools) or tools.nvrtc
    newest_here = tools.ptx_versions[-1]
    if compiler is not None:
        emitted = newest_isa(compiler)
        if emitted is not None:
            what = "NVVM's PTX, assembled by nvPTXCompiler"
            if tools.nvrtc is None:
                yield Ability(what, able=False, why=_NO_NVRTC)
            else:
                reads = f"nvPTXCompiler {_dotted(tools.nvptxcompiler)} reads {newest_here}"
                yield Ability(what, emitted <= newest_here, f"PTX {emitted} at most; {reads}")
        if emitted is not None and driver_isa is not None:
            yield Ability(
                "NVVM's PTX, compiled by the driver",
                emitted <= driver_isa,
                f"PTX {emitted} at most; the driver (CUDA {_dotted(tools.driver)}) reads {driver_isa}",
                "never asked: kernels reach the driver as machine code, here and with nvJitLink"
                if tools.nvjitlink
                else "fails where PTX is newer than the driver",
            )
    if tools.driver is not None:
        yield from _loadable(tools, tools.driver)
    if tools.nvrtc is not None and tools.nvjitlink is not None:
        yield _links_ltoir(tools)


def _loadable(tools: Toolchain, cuda: tuple[int, int]) -> Iterator[Ability]:
    compiler, linker = tools.nvptxcompiler, tools.nvjitlink
    # Under a toolkit of an older major version, all links are nvJitLink's.
    maker = linker if linker and linker[0] < compiler[0] else compiler
    rule = "any minor version of one major version"
    yield Ability(
        "cubins, loaded by the driver",
        cuda[0] >= maker[0],
        f"made by CUDA {_dotted(maker)}, driver of CUDA {_dotted(cuda)}: {rule}",
    )
    if maker != compiler:
        yield Ability(
            "cubins of assemble(), loaded by the driver",
            cuda[0] >= compiler[0],
            f"made by nvPTXCompiler {_dotted(compiler)}, driver of CUDA {_dotted(cuda)}: {rule}",
        )


def _links_ltoir(tools: Toolchain) -> Ability:
    what = "NVRTC's LTO-IR, linked by nvJitLink"
    versions = f"NVRTC {_dotted(tools.nvrtc)}, nvJitLink {_dotted(tools.nvjitlink)}"
    try:
        code = nvrtc.compile_source(_SAMPLE, "sample.cu", Arch(7, 5), output=LTOIR).code
        header = ltoir.read(code)
        nvjitlink.link([(LTOIR, "sample", code)], ("-arch=sm_75", "-lto"))
    except PtxlinkError as error:
        return Ability(what, able=False, why=f"{versions}: {str(error).splitlines()[0]}")
    container = _dotted(header.container) if header else "unknown"
    return Ability(what, able=True, why=f"{versions}, container {container}: tried")


def _problems(
    tools: Toolchain, status: _plugin.Status, abilities: tuple[Ability, ...], broken: Mapping[str, Problem]
) -> Iterator[Problem]:
    yield from _front_end_problems(status, broken)
    if status.active and status.trigger == "entry point":
        yield Problem(
            "the import hook is not installed, so CUDA-only programs do not activate the plugin",
            _INSTALL,
        )
    yield from _tool_problems(tools)
    for ability in abilities:
        if ability.able or ability.why == _NO_NVRTC:
            continue  # a tool that is missing has its own problem
        if "compiled by the driver" in ability.what:
            yield Problem(
                f"{ability.what}: {ability.why}. Other programs that hand PTX to this driver fail",
                "none needed here: kernels are compiled before the driver sees them",
            )
        elif "assemble()" in ability.what:
            yield Problem(
                f"{ability.what}: {ability.why}",
                "none needed for kernels and link(), which take the toolkit's nvJitLink; "
                "upgrade the driver for those of assemble()",
            )
        elif "loaded by the driver" in ability.what:
            yield Problem(
                f"{ability.what}: {ability.why}",
                "upgrade the driver, or install the tools of its own major version in a new environment, "
                f"as with {packages.install(12)}",
            )
        else:
            cure = f"upgrade together: {packages.install()} --upgrade"
            yield Problem(f"{ability.what}: {ability.why}", cure)


def _front_end_problems(status: _plugin.Status, broken: Mapping[str, Problem]) -> Iterator[Problem]:
    there = {each.name: each for each in registry.front_ends() if registry.installed(each)}
    if not there:
        extras = " or ".join(f"'numba-ptxlink[{each.extra}]'" for each in registry.front_ends())
        yield Problem(
            "no compiler for Python functions is installed: export() and kernels are not served",
            f"none needed to link and assemble; else python -m pip install {extras}",
        )
    for each in status.front_ends:
        if each.name in broken:
            yield broken[each.name]
        elif each.name in there and not each.active:
            what = f"the plugin is not active in {each.name}: {each.reason}"
            yield Problem(what, _activation_cure(each.reason))


def _tool_problems(tools: Toolchain) -> Iterator[Problem]:
    compilers = " and ".join(each.name for each in registry.front_ends() if registry.installed(each))
    nothing = f", and {compilers} cannot compile" if compilers else ""
    for name, package, version, fails in (
        ("nvJitLink", "nvidia-nvjitlink", tools.nvjitlink, "CUDA C++ and links of several inputs fail"),
        ("NVRTC", "nvidia-cuda-nvrtc", tools.nvrtc, f"CUDA C++ fails{nothing}"),
        ("NVVM", "nvidia-nvvm", _nvvm_version(tools), "no Python function is compiled"),
        ("nvFatbin", "nvidia-nvfatbin", tools.nvfatbin, "exports make no fat binaries, kernels and objects"),
    ):
        if version is None:
            yield Problem(f"{name} is missing: {fails}", packages.elsewhere(package) or packages.install())
    if tools.nvjitlink == LOSES_STRUCTS:
        yield Problem(
            "nvJitLink 13.0 passes some structs of more than 128 bytes wrongly where it links PTX or cubins",
            "python -m pip install --upgrade nvidia-nvjitlink",
        )
    release, compiler = host_compiler.nvcc_release(), tools.nvptxcompiler
    if release is not None and release < compiler:
        ptx = _nvvm_version(tools)
        old = ptx is None or ptx <= release
        unread = "does not read" if old else f"reads neither the PTX of {_dotted(ptx)} nor"
        yield Problem(
            f"the nvcc that is found is of CUDA {_dotted(release)}: it {unread} the machine code of "
            f"{_dotted(compiler)}, which exports hold",
            f"export for it, by cuda={_dotted(release)!r} or --cuda {_dotted(release)}",
        )
    if tools.driver is None:
        yield Problem(
            "there is no driver: code can be compiled and linked, but not run",
            "none needed on a build machine; install NVIDIA's driver to run kernels",
        )


def _activation_cure(reason: str) -> str:
    for words, cure in _CURES:
        if words in reason:
            return cure
    return "import numba.cuda, or call numba_ptxlink.enable()" if _installed_hook() else _INSTALL


def _installed_hook() -> bool:
    try:
        files = importlib.metadata.files("numba-ptxlink") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    # Elsewhere, such as in a folder of PYTHONPATH, Python does not read it.
    return any(file.name == "numba_ptxlink.pth" and packages.is_site(file.locate()) for file in files)


def _dotted(version: tuple[int, int] | None) -> str:
    return "" if version is None else f"{version[0]}.{version[1]}"
