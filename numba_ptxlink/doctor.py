"""Diagnose the environment: installed tools, activation, compatibility of the tools, problems and cures."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _plugin
from ._arch import Arch, dotted
from ._config import config
from ._formats import ltoir
from ._formats.kinds import LTOIR
from ._formats.ptx import read_header
from ._formats.ptx.isa import newest_isa
from ._front_end import registry
from ._link import single_ptx
from ._link.checks import LOSES_STRUCTS
from ._tools import driver, host_compiler, machine, nvfatbin, nvjitlink, nvptxcompiler, nvrtc, packages
from ._tools.compilers import Compiler, compilers
from ._tools.components import Component, components, nvvm_version
from ._tools.nvvm import compile_empty, emitted_isa, too_new
from ._tools.toolchain import toolchain
from .errors import PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ._arch import PtxVersion
    from ._tools.toolchain import Toolchain

    Release = tuple[int, int]

__all__ = ["Ability", "Compiler", "Component", "Diagnosis", "Problem", "diagnose", "driver_can_load_ptx"]

_INSTALL = "install the package with pip, import numba_ptxlink first, or call numba_ptxlink.enable()"
# By words of the reason; the first that are in it count.
_CURES = (
    ("is unknown", "set the variable to a value that the message names, or unset it"),
    ("compiled part", "make that loadable, as the message says"),
    ("is damaged", "install numba-ptxlink again, as the message says"),
    (
        "NUMBA_PTXLINK=auto",
        "none needed: auto stays off where the driver is new enough; NUMBA_PTXLINK=1 turns it on",
    ),
    ("NUMBA_PTXLINK=", "unset NUMBA_PTXLINK, or call numba_ptxlink.enable()"),
    ("before numba.cuda", "import both packages in the order that the reason names"),
    ("simulator", "unset NUMBA_ENABLE_CUDASIM to run on a device"),
    ("not supported", "install the release that the message names, or a newer numba-ptxlink"),
    ("does not run with", "install the release of NumPy that the message names"),
    ("lacks", "install the release that the message names, or a newer numba-ptxlink"),
)
_SAMPLE = 'extern "C" __device__ int f(int a) { return a; }\n'
_SAMPLE_ARCH = Arch(7, 5)


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
    """Diagnose this environment. Imports the front ends, as a program would; needs no GPU and no driver."""
    config()
    broken = _import_front_ends()
    status, tools = _plugin.status(), toolchain()
    nvvm = nvvm_version(tools)
    driver_isa = newest_isa(tools.driver) if tools.driver else None
    trials = tuple(_trials(tools, nvvm, driver_isa))
    return Diagnosis(
        components=tuple(components(tools, nvvm)),
        compilers=tuple(compilers()),
        active=status.active,
        reason=status.reason if status.active or not broken else next(iter(broken.values())).what,
        trigger=status.trigger or "",
        front_ends=tuple(
            each._replace(reason=broken[each.name].what if each.name in broken else each.reason)
            for each in status.front_ends
        ),
        driver_isa=str(driver_isa or ""),
        abilities=tuple(trial.ability for trial in trials),
        problems=(
            *_front_end_problems(status, broken),
            *_tool_problems(tools, nvvm),
            *filter(None, (trial.problem for trial in trials)),
        ),
        system=machine.describe(),
    )


def _import_front_ends() -> dict[str, Problem]:
    """Import the modules that the import hook waits for; return why that failed, by the front ends' names."""
    broken = {}
    for front_end in filter(registry.installed, registry.front_ends()):
        try:
            packages.check("cudart")  # numba-cuda loads it.
            # As every program does: two threads that enter a package from its two ends cannot both go on.
            importlib.import_module(front_end.package)
            importlib.import_module(front_end.driver)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the finding
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            what = f"{front_end.package} cannot be imported ({type(error).__name__}: {said})"
            cure = f"repair {front_end.name}, such as with `pip install 'numba-ptxlink[{front_end.extra}]'`"
            known = error if isinstance(error, PtxlinkError) else packages.explained(error)
            if known is not None:
                cure = str(known).removesuffix(".").rpartition("; ")[2]
            unsupported = (front_end.unsupported_reason() or "").partition("; ")
            if unsupported[2]:
                what, cure = f"{unsupported[0]}: {what}", unsupported[2]
            broken[front_end.name] = Problem(what, cure)
    return broken


class _Trial(NamedTuple):
    """An ability, and what helps without it: "" where the tool that is missing has a problem of its own."""

    ability: Ability
    cure: str
    affects: str = ""

    @property
    def problem(self) -> Problem | None:
        if self.ability.able or not self.cure:
            return None
        return Problem(f"{self.ability.what}: {self.ability.why}{self.affects}", self.cure)


def _trials(tools: Toolchain, nvvm: Release | None, driver_isa: PtxVersion | None) -> Iterator[_Trial]:
    together = f"upgrade together: {packages.install()} --upgrade"
    compiler = nvvm or tools.nvrtc
    emitted = newest_isa(compiler) if compiler else None
    if emitted is not None and tools.ptx_versions:
        newest = tools.ptx_versions[-1]
        why = f"PTX {emitted} at most; nvPTXCompiler {dotted(tools.nvptxcompiler)} reads {newest}"
        able, cure = emitted <= newest, together
        if tools.nvrtc is None:
            able, why, cure = False, "Numba compiles nothing without NVRTC", ""
        yield _Trial(Ability("NVVM's PTX, assembled by nvPTXCompiler", able, why), cure)
    if emitted is not None and driver_isa is not None:
        stock = "fails where PTX is newer than the driver"
        if tools.nvjitlink:
            stock = "never asked: kernels reach the driver as machine code, here and with nvJitLink"
        why = f"PTX {emitted} at most; the driver (CUDA {dotted(tools.driver)}) reads {driver_isa}"
        yield _Trial(
            Ability("NVVM's PTX, compiled by the driver", emitted <= driver_isa, why, stock),
            "none needed here: kernels are compiled before the driver sees them",
            ". Other programs that hand PTX to this driver fail",
        )
    if tools.driver is not None and tools.nvptxcompiler is not None:
        yield from _loads(tools, nvvm)
    if tools.nvrtc is not None and tools.nvjitlink is not None:
        yield _Trial(_links_ltoir("NVRTC", tools.nvrtc, tools.nvjitlink, _ltoir_of_nvrtc), together)
    if nvvm is not None and tools.nvjitlink is not None:
        mixed = too_new(tools.nvjitlink)
        yield _Trial(
            _links_ltoir("NVVM", nvvm, tools.nvjitlink, _ltoir_of_nvvm),
            mixed[1] if mixed else together,
            f". {mixed[0]}: kernels become code that drivers of CUDA {tools.nvjitlink[0]} do not load"
            if mixed
            else "",
        )


def _loads(tools: Toolchain, nvvm: Release | None) -> Iterator[_Trial]:
    compiler, linker, driver = tools.nvptxcompiler, tools.nvjitlink, tools.driver
    if compiler is None or driver is None:
        return
    rule = f"driver of CUDA {dotted(driver)}: any minor version of one major version"
    # Under a toolkit of an older major version, all links are nvJitLink's, if it reads NVVM's PTX.
    older = linker and linker[0] < compiler[0] and (nvvm is None or nvvm[0] <= linker[0])
    maker = linker if linker and older else compiler
    yield _Trial(
        Ability(
            "cubins, loaded by the driver", driver[0] >= maker[0], f"made by CUDA {dotted(maker)}, {rule}"
        ),
        "upgrade the driver, or install the tools of its own major version in a new environment, as with "
        f"{packages.install(12)}",
    )
    if maker != compiler:
        yield _Trial(
            Ability(
                "cubins of assemble(), loaded by the driver",
                driver[0] >= compiler[0],
                f"made by nvPTXCompiler {dotted(compiler)}, {rule}",
            ),
            "none needed for kernels and link(), which take the toolkit's nvJitLink; upgrade the driver for "
            "those of assemble()",
        )


def _links_ltoir(name: str, maker: Release, linker: Release, compiled: Callable[[], bytes]) -> Ability:
    what = f"{name}'s LTO-IR, linked by nvJitLink"
    versions = f"{name} {dotted(maker)}, nvJitLink {dotted(linker)}"
    try:
        code = compiled()
        header = ltoir.read(code)
        nvjitlink.link([(LTOIR, "sample", code)], ("-arch=sm_75", "-lto"))
    except PtxlinkError as error:
        return Ability(what, able=False, why=f"{versions}: {str(error).splitlines()[0]}")
    container = dotted(header.container) if header else "unknown"
    return Ability(what, able=True, why=f"{versions}, container {container}: tried")


def _ltoir_of_nvrtc() -> bytes:
    return nvrtc.compile_source(_SAMPLE, "sample.cu", _SAMPLE_ARCH, output=LTOIR).code


def _ltoir_of_nvvm() -> bytes:
    return compile_empty(_SAMPLE_ARCH, "-gen-lto") or b""


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
    copies = packages.copies("numba-ptxlink")
    if len(copies) > 1:
        places = " and ".join(f"{version} in {folder}" for folder, version in copies.items())
        yield Problem(
            f"numba-ptxlink is there {len(copies)} times: {places}; the import hook may be another's",
            "remove all but one, such as the folder out of PYTHONPATH",
        )
    if status.active and status.trigger == "entry point":
        yield Problem(
            "the import hook is not installed, so CUDA-only programs do not activate the plugin",
            _INSTALL,
        )


def _tool_problems(tools: Toolchain, nvvm: Release | None) -> Iterator[Problem]:
    compilers = " and ".join(each.name for each in registry.front_ends() if registry.installed(each))
    nothing = f", and {compilers} cannot compile" if compilers else ""
    try:
        nvptxcompiler.load()
    except PtxlinkError as error:
        reason, _, cure = str(error).removesuffix(".").rpartition("; ")
        yield Problem(f"PTX is not assembled: {reason}", cure)
    for name, version, ask, fails in (
        (
            "nvJitLink",
            tools.nvjitlink,
            nvjitlink.version,
            "links of LTO-IR, cubins, objects and debug information fail",
        ),
        ("NVRTC", tools.nvrtc, nvrtc.version, f"CUDA C++ fails{nothing}"),
        ("NVVM", nvvm, lambda: emitted_isa(Arch(9, 0)), "no Python function is compiled"),
        (
            "nvFatbin",
            tools.nvfatbin,
            nvfatbin.version,
            "exports make no fat binaries, kernels and objects",
        ),
    ):
        if version is None:
            reason, told, cure = _refusal(ask).rpartition("; ")
            what = reason if packages.FOUND in reason else f"{name} is missing"
            yield Problem(f"{what}: {fails}", cure if told else packages.install())
    if tools.nvjitlink == LOSES_STRUCTS:
        yield Problem(
            "nvJitLink 13.0 passes some structs of more than 128 bytes wrongly where it links PTX or cubins",
            "python -m pip install --upgrade nvidia-nvjitlink",
        )
    if mixed := packages.mixed_nvcc():
        yield Problem(*mixed)
    release = host_compiler.nvcc_release()
    held = {"PTX": nvvm, "machine code": single_ptx.usual_release() if tools.nvptxcompiler else None}
    newer = [
        f"the {kind} of {dotted(maker)}"
        for kind, maker in held.items()
        if release is not None and maker is not None and maker > release
    ]
    if release is not None and newer:
        unread = "does not read" if len(newer) == 1 else "reads neither"
        yield Problem(
            f"the nvcc that is found is of CUDA {dotted(release)}: it {unread} {' nor '.join(newer)}, which "
            "exports hold",
            f"export for it, by cuda={dotted(release)!r} or --cuda {dotted(release)}",
        )
    if tools.driver is None:
        yield Problem(
            "there is no driver: code can be compiled and linked, but not run",
            "none needed on a build machine; install NVIDIA's driver to run kernels",
        )


def _refusal(ask: Callable[[], object]) -> str:
    """Return the error of *ask*, "" if it has none."""
    try:
        ask()
    except PtxlinkError as error:
        return str(error).removesuffix(".")
    return ""


def _activation_cure(reason: str) -> str:
    for words, cure in _CURES:
        if words in reason:
            return cure
    if "; " in reason:
        return reason.rpartition("; ")[2]
    return "import numba.cuda, or call numba_ptxlink.enable()" if _installed_hook() else _INSTALL


def _installed_hook() -> bool:
    try:
        files = importlib.metadata.files("numba-ptxlink") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    # Elsewhere, such as in a folder of PYTHONPATH, Python does not read it.
    return any(file.name == "numba_ptxlink.pth" and packages.is_site(file.locate()) for file in files)
