"""
Explain why a link failed, and what helps: a table of what NVIDIA's tools say, and the near names in PTX.

What a front end calls the options, `for_kernel` puts in the place of what `link` calls them.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AssembleError, LinkError

from . import backends

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .check import Symbol
    from .read import Input

_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern (?:function|variable)) '([^']+)'")
_TO_DEFINE = "Add the input that defines it, or correct the name."
_FLAGS = "extra_flags"
_MANGLED = re.compile(r"_Z(\d+)(\w+)")
_MAX_LISTED = 5
NEWER = "may need newer version of nvJitLink"
"""What nvJitLink says of LTO-IR that is newer than itself."""

# What a tool's log has, and what helps; of several the first that fits.
_CURES = {
    "LTO-IR input cannot be used without LTO enabled": (
        "All that fits the architecture in that input is LTO-IR: pass lto=True (--lto), or compile machine "
        "code into it, too (nvcc -gencode arch=compute_90,code=sm_90)."
    ),
    "NVVM_ERROR_NO_MODULE_IN_PROGRAM": (
        "None of the inputs is LTO-IR, and there is nothing to optimise at link time: leave lto out, or give "
        "LTO-IR or CUDA C++ in place of one."
    ),
    "LTOIR arch newer than target arch": (
        "Generate it for the architecture of this link or an older one, or link for its own."
    ),
    "SM version specified by .target is higher": (
        "Generate the PTX for the architecture of this link or an older one, or link for its own."
    ),
    "symbol multiply defined": (
        "Rename one, leave one out, make it static, or mark it weak (inline in C++). Of exports, link PTX or "
        "cubins, which keep what is not exported to themselves; what link= of a Python function names is "
        "part of its code."
    ),
    "debug compile units is more than 1": (
        "From sm_100 on, several inputs are not optimised together for a debugger: pass lto=False with debug."
    ),
    "ERROR 3: bad input": (
        "It may have no code for the architecture of this link, which `numba-ptxlink inspect` tells: compile "
        "it for that too (nvcc -gencode), or link for one of its own."
    ),
    "bad input": (
        "It is damaged, not of the kind that its name says, or of a newer toolkit than nvJitLink: generate "
        "or copy it again, link its PTX or CUDA C++ in its place, or upgrade nvJitLink."
    ),
    "ERROR_INVALID_INPUT": "It is empty: generate or copy it again.",
    "library processing": "It is damaged: generate or copy it again.",
    "Unknown option": f"Correct or remove that flag in {_FLAGS}.",
    "Alignment of argument does not match formal parameter": (
        "nvJitLink before 13.2 can lose track of the types of inputs that have many structs: upgrade it, or "
        "link the PTX of one of them."
    ),
}


def explained(
    error: AssembleError | LinkError, sources: Sequence[Input], tool: str = ""
) -> AssembleError | LinkError:
    """
    Return *error* with what helps; of symbols that nothing defines, always as a `LinkError`.

    Args:
        error: What the link failed with.
        sources: Its inputs, which are named in place of what became of them.
        tool: What failed.
    """
    names = list(dict.fromkeys(_UNDEFINED.findall(error.log)))
    inputs = error.inputs or tuple(source.name for source in sources)
    error_text, kind = str(error), type(error)
    if isinstance(error, AssembleError):
        error_text = f"{', '.join(inputs)}: {error_text}"
    # nvPTXCompiler's error has told the cure.
    is_told = isinstance(error, AssembleError) and tool != "ptxas"
    cure = "" if is_told else _cure(error.log or error_text, tool)
    if names:
        from numba_ptxlink.assembler import TO_RESOLVE

        kind, cure = LinkError, _undefined(names, sources)
        error_text = error_text.removesuffix(f"\n{TO_RESOLVE}")
    return kind("\n".join(filter(None, (error_text, cure))), flags=error.flags, inputs=inputs, log=error.log)


def _cure(failure: str, tool: str) -> str:
    if NEWER in failure and tool:
        return f"The LTO-IR is newer than nvJitLink reads: {upgrade(backends.linker(tool).package())}"
    return next((cure for pattern, cure in _CURES.items() if pattern in failure), "")


def upgrade(package: str) -> str:
    """Return the cure for an input that is newer than a linker reads, which *package* brings."""
    return (
        f"upgrade it with `pip install --upgrade {package}`, generate the input with an older toolkit, or "
        f"link in another environment with CUDA 13's: `{find.install(13)}`."
    )


def for_kernel(message: str, flags: str = _FLAGS) -> str:
    """
    Return *message* about the link of a kernel in the words of its front end.

    Args:
        message: What an error says, in the words of `link`.
        flags: The front end's name for the flags of ptxas.
    """
    defined = "Give the file that defines it to link= of declare_device or jit, or correct the name."
    return message.replace(_TO_DEFINE, defined).replace(_FLAGS, flags)


def _undefined(names: Sequence[str], sources: Sequence[Input]) -> str:
    """Return what is known of symbols that nothing defines, with near names out of the PTX of the link."""
    from .check import symbols

    ptx_inputs = [source for source in sources if source.kind == PTX]
    found = [symbol for source in ptx_inputs for symbol in symbols(source)]
    hidden: dict[str, str] = {}
    for source in ptx_inputs:
        for items in (source.module.functions, source.module.variables):
            hidden |= {item.name: source.name for item in items if item.defined and not item.linkage}
    lines = [_of_name(name, found, hidden) for name in names[:_MAX_LISTED]]
    if len(names) > _MAX_LISTED:
        lines.append(f"... and {len(names) - _MAX_LISTED} more, in the attribute log.")
    if empty := [source.name for source in ptx_inputs if not any(each.defined for each in symbols(source))]:
        lines.append(
            f"{', '.join(empty)} defines nothing that others see: nvcc leaves out device functions without "
            "-rdc=true."
        )
    opaque = [source.name for source in sources if source.kind != PTX]
    if opaque:
        lines.append(
            f"Linkers ignore the code in {', '.join(opaque)} that is not relocatable (nvcc -rdc=true, "
            "assemble(relocatable=True)); and where LTO-IR holds a kernel, they drop of it what only PTX or "
            "machine code calls: give both as LTO-IR, or neither."
        )
    return "\n".join([*lines, _TO_DEFINE])


def _of_name(name: str, found: Sequence[Symbol], hidden: Mapping[str, str]) -> str:
    """Return what is known of a symbol that nothing defines."""
    own = [symbol for symbol in found if symbol.name == name and not symbol.defined]
    users = ", ".join(symbol.origin for symbol in own)
    asked = f"{name} is asked for{' by ' + users if users else ''}"
    if name in hidden:
        return (
            f"{asked} and defined in {hidden[name]}, which keeps it to itself. Make it .visible there; in "
            "CUDA C++, not static."
        )
    defined = {symbol.name: symbol.origin for symbol in found if symbol.defined}
    if name in defined and not own:
        return f"{name} is defined in {defined[name]}, and declared elsewhere without .extern: add it there."
    near = _near(name, defined)
    line = f"{asked} and defined in no input"
    if not near:
        return f"{line}."
    line += "; there is " + ", ".join(f"{candidate} in {defined[candidate]}" for candidate in near)
    same = any(_plain(candidate) == _plain(name) for candidate in near)
    return line + (': one of the two lacks extern "C".' if same else ": is that one meant?")


def _near(name: str, defined: Collection[str]) -> list[str]:
    same = [candidate for candidate in defined if _plain(candidate) == _plain(name)]
    return list(dict.fromkeys((*same, *difflib.get_close_matches(name, defined, n=3, cutoff=0.6))))[:3]


def _plain(name: str) -> str:
    """Return the plain name inside a simple mangled symbol, *name* itself where it is not one."""
    match = _MANGLED.match(name)
    return match[2][: int(match[1])] if match else name
