"""Choose the tool that makes the cubin: the one the inputs need, or exactly the one the caller names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler
from numba_ptxlink._config import BACKENDS
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools import nvjitlink, pynvjitlink
from numba_ptxlink.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from .inputs import Input

_MODULES = {"nvjitlink": nvjitlink, "pynvjitlink": pynvjitlink}


def choose(inputs: Sequence[Input], *, lto: bool, asked: str = "auto") -> tuple[str, str]:
    """
    Return the tool that makes a cubin of *inputs*, and the reason for it.

    Args:
        inputs: The inputs of the link, none of them CUDA C++.
        lto: Whether to optimise at link time.
        asked: The tool to use, or "auto" to choose by the inputs.

    Raises:
        ConfigError: *asked* is not the name of a tool.
        LinkError: The tool *asked* cannot link *inputs*. Names those that can.
    """
    if asked not in BACKENDS:
        raise ConfigError(f"There is no backend {asked!r}; choose {', '.join(BACKENDS)}.")
    obstacle = _obstacle(inputs, lto=lto)
    if asked == "nvptxcompiler" and obstacle:
        raise LinkError(
            f"The backend nvptxcompiler assembles one PTX and links nothing; here is {obstacle}. "
            "The backends nvjitlink and pynvjitlink can do it, and auto chooses one: "
            "set NUMBA_PTXLINK_BACKEND=auto or backend='auto'.",
            inputs=tuple(source.name for source in inputs),
        )
    if asked != "auto":
        return asked, "asked for"
    if obstacle is None:
        return "nvptxcompiler", "one PTX and nothing to link it with"
    return _linker(obstacle)


def linker(name: str) -> Any:
    """Return the module of the backend *name*, which has `link`, `version` and `PACKAGE`."""
    module: ModuleType = _MODULES[name]
    return module


def _obstacle(inputs: Sequence[Input], *, lto: bool) -> str | None:
    """Return why nvPTXCompiler cannot make the cubin, None where it can."""
    if lto:
        return "link-time optimisation"
    if len(inputs) > 1:
        return f"{len(inputs)} inputs"
    if inputs[0].kind != PTX:
        article = "an" if inputs[0].kind[0] in "ao" else "a"
        return f"{article} {inputs[0].kind}"
    declared = inputs[0].header.version
    newest = max(assembler.supported_ptx_versions())
    if declared is not None and declared > newest:
        return f"PTX {declared}, newer than nvPTXCompiler's {newest}"
    return None


def _linker(reason: str) -> tuple[str, str]:
    try:
        nvjitlink.version()
    except LinkError as missing:
        try:
            pynvjitlink.version()
        except LinkError:
            raise missing from None
        return "pynvjitlink", f"{reason}, and nvJitLink is not there through cuda.bindings"
    return "nvjitlink", reason
