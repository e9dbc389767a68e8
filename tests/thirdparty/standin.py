"""
Compile and link a module's cases for a stand-in device, in the environment of this process.

    python standin.py prepare FOLDER programs/NAME.py
    python standin.py run FOLDER programs/NAME.py [CASE ...]

FOLDER gets the cubins and `outcomes.json`. A module of programs has `CASES`, functions by name that return
a `Kernel`, a `Ptx` or a finished cubin, and may have `prepare(folder)`, which makes what all runs share.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CC = (8, 0)
ARCH = "sm_80"


class Kernel(NamedTuple):
    """A kernel and the types of its arguments."""

    dispatcher: Any
    signature: tuple[Any, ...]
    options: dict[str, Any] = {}  # noqa: RUF012 - the default of a tuple, which nobody changes


class Ptx(NamedTuple):
    """A PTX file with kernels, and the architecture to assemble it for."""

    path: Path
    arch: str


def stand_in() -> None:
    """Give numba-cuda a device that loads nothing, and libraries a driver where the environment names one."""
    # Programs ask for these classes by this module's name, which runs as a script.
    sys.modules["standin"] = sys.modules[__name__]
    sys.path.insert(0, str(HERE.parent / "helpers"))
    import fakedevice

    # Numba first looks for its own driver, and must find none.
    if path := os.environ.get("STANDIN_DRIVER"):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    fakedevice.install(cc=CC)


def load(path: Path) -> Any:
    """Import the module of programs at *path*."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def library_of(case: Kernel, **options: Any) -> Any:
    """Return the code library of a kernel."""
    from numba.cuda.dispatcher import _Kernel

    chosen = {**case.dispatcher.targetoptions, "extensions": case.dispatcher.extensions}
    kernel = _Kernel(case.dispatcher.py_func, case.signature, **{**chosen, **case.options, **options})
    return kernel._codelibrary


def link_kernel(case: Kernel, folder: Path, stem: str, *, plugin: bool) -> bytes:
    """Return the cubin of a kernel."""
    library = library_of(case)
    cubin = bytes(library.get_cubin().code)
    if not library._linking_files and not plugin:
        # If nothing is linked, the plugin compiles without LTO: compare with stock without LTO.
        alone = library_of(case, lto=False).get_cubin()
        (folder / f"{stem}.without_lto.cubin").write_bytes(bytes(alone.code))
    return cubin


def link_ptx(case: Ptx, *, plugin: bool) -> bytes:
    """Return the cubin of a PTX file by this project, or by nvJitLink, the linker of Numba."""
    if plugin:
        import numba_ptxlink

        return numba_ptxlink.link(case.path, arch=case.arch).cubin
    from cuda.bindings import nvjitlink

    text, options = case.path.read_bytes(), [f"-arch={case.arch}"]
    handle = nvjitlink.create(len(options), options)
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), case.path.name)
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    return bytes(cubin)


def run(case: Any, folder: Path, stem: str, *, plugin: bool) -> dict[str, Any]:
    """Return the outcome of one case; its cubins lie in *folder* as *stem*."""
    try:
        case_input = case()
        if isinstance(case_input, Ptx):
            cubin = link_ptx(case_input, plugin=plugin)
        elif isinstance(case_input, Kernel):
            cubin = link_kernel(case_input, folder, stem, plugin=plugin)
        else:
            cubin = case_input
    except Exception as error:  # noqa: BLE001 - any exception is an outcome
        return {"outcome": f"{type(error).__name__}: {error}"}
    (folder / f"{stem}.cubin").write_bytes(cubin)
    outcome = {"outcome": "linked", "stem": stem}
    if isinstance(case_input, Ptx):
        outcome |= {"ptx": str(case_input.path), "arch": case_input.arch}
    return outcome


def main() -> None:
    """Take the mode, the folder and the module from the command line."""
    step, folder, *rest = sys.argv[1:]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    stand_in()
    programs = load(Path(rest[0]))
    if step == "prepare":
        programs.prepare(target)
        return
    from numba.cuda.cudadrv import driver

    linker = driver._Linker.__name__
    cases = {
        name: run(programs.CASES[name], target, f"{number:03}", plugin=linker == "PtxLinker")
        for number, name in enumerate(rest[1:] or programs.CASES)
    }
    (target / "outcomes.json").write_text(json.dumps({"linker": linker, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
