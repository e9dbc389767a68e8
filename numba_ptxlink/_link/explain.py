"""
Explain why a link failed: a table of messages of NVIDIA's tools with their cures, and similar names in PTX.

`for_kernel` replaces the option names of `link` by those of the front end.
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

    from .read import Input
    from .symbols import Symbol

_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern (?:function|variable)) '([^']+)'")
_TO_DEFINE = "Add the input that defines it, or correct the name."
# The name of the option in messages, which `for_kernel` replaces.
_FLAGS = "extra_flags"
# The length of a name, and text that begins with the name, such as `_Z5saxpyfPf` for saxpy.
_MANGLED = re.compile(r"_Z(\d+)(\w+)")
_MAX_LISTED = 5
NEWER = "may need newer version of nvJitLink"
"""nvJitLink's message about LTO-IR of a newer release."""

# Texts in a tool's log, and the cure for each; the first text that the log contains gives the cure.
_CURES = {
    "LTO-IR input cannot be used without LTO enabled": (
        "The input has only LTO-IR for this architecture; pass lto=True (--lto), or add a cubin: "
        "nvcc -gencode arch=compute_90,code=sm_90."
    ),
    "NVVM_ERROR_NO_MODULE_IN_PROGRAM": (
        "No input is LTO-IR, so there is nothing to optimise at link time; leave lto out, or link LTO-IR or "
        "CUDA C++ in place of an input."
    ),
    "LTOIR arch newer than target arch": (
        "Compile the LTO-IR for the architecture of this link or an older one, or link for its architecture."
    ),
    "SM version specified by .target is higher": (
        "Generate the PTX for the architecture of this link or an older one, or link for its architecture."
    ),
    "symbol multiply defined": (
        "Rename one, leave one out, make it static, or mark it weak (inline in C++). If both are exports, "
        "link their PTX or cubins, which define helper functions without linkage; a file in link= of a "
        "Python function is a part of the function's code already."
    ),
    "debug compile units is more than 1": (
        "From sm_100 on, nvJitLink does not optimise several inputs with debug information; pass lto=False "
        "with debug."
    ),
    "ERROR 3: bad input": (
        "The input may have no code for the architecture of this link; list its code by `numba-ptxlink "
        "inspect`, then compile it for this architecture too (nvcc -gencode), or link for one that it has."
    ),
    "bad input": (
        "The input is damaged, is of another kind than its name says, or was made by a newer toolkit than "
        "nvJitLink; generate or copy it again, link its PTX or CUDA C++ in its place, or upgrade nvJitLink."
    ),
    "ERROR_INVALID_INPUT": "The input is empty; generate or copy it again.",
    "library processing": "The library is damaged; generate or copy it again.",
    "too much global constant data": (
        "Constant memory, with global arrays of Python functions, has 64 KiB; pass large arrays as arguments."
    ),
    "Unknown option": f"Correct or remove that flag in {_FLAGS}.",
    "Alignment of argument does not match formal parameter": (
        "nvJitLink before 13.2 confuses types of inputs that have many structs; upgrade nvJitLink, or link "
        "the PTX of one of the inputs."
    ),
}


def with_cure(
    error: AssembleError | LinkError, sources: Sequence[Input], tool: str = ""
) -> AssembleError | LinkError:
    """
    Return *error* with its cure; a `LinkError` if the error is about undefined symbols.

    Args:
        error: The error of the link.
        sources: The inputs as the user passed them, since the error may name a PTX merged of several inputs.
        tool: The tool that failed; "" if none ran.
    """
    names = list(dict.fromkeys(_UNDEFINED.findall(error.log)))
    inputs = error.inputs or tuple(source.name for source in sources)
    error_text, error_type = str(error), type(error)
    if isinstance(error, AssembleError):
        error_text = f"{', '.join(inputs)}: {error_text}"
    # The errors of nvPTXCompiler have a cure already.
    has_cure = isinstance(error, AssembleError) and tool != "ptxas"
    cure = "" if has_cure else _cure(error.log or error_text, tool)
    if names:
        from numba_ptxlink.assembler import UNDEFINED_SYMBOL_CURE

        error_type, cure = LinkError, _explain_undefined(names, sources)
        error_text = error_text.removesuffix(f"\n{UNDEFINED_SYMBOL_CURE}")
    message = "\n".join(filter(None, (error_text, cure)))
    return error_type(message, flags=error.flags, inputs=inputs, log=error.log)


def _cure(failure: str, tool: str) -> str:
    """Return the cure for the log or message *failure*; "" if it is not known."""
    if NEWER in failure and tool:
        return (
            "The LTO-IR is of a newer CUDA release than nvJitLink; "
            f"{upgrade_cure(backends.linker_module(tool).package())}"
        )
    return next((cure for text, cure in _CURES.items() if text in failure), "")


def upgrade_cure(package: str) -> str:
    """Return the cure for an input that is newer than the linker in *package* reads."""
    return (
        f"upgrade it with `pip install --upgrade {package}`, generate the input with an older toolkit, or "
        f"link in another environment with the linker of CUDA 13: `{find.install_command(13)}`."
    )


def for_kernel(message: str, flags: str = _FLAGS) -> str:
    """
    Return *message* about the link of a kernel with the option names of its front end.

    Args:
        message: The message of an error, with the option names of `link`.
        flags: The front end's name for the flags of ptxas.
    """
    cure = "Pass the file that defines it as link= of declare_device or jit, or correct the name."
    return message.replace(_TO_DEFINE, cure).replace(_FLAGS, flags)


def _explain_undefined(names: Sequence[str], sources: Sequence[Input]) -> str:
    """Return the explanation of undefined symbols, with similar names in the PTX of the link."""
    from .symbols import symbols

    ptx_inputs = [source for source in sources if source.kind == PTX]
    visible = [symbol for source in ptx_inputs for symbol in symbols(source)]
    # The input that defines each symbol without linkage.
    hidden: dict[str, str] = {}
    for source in ptx_inputs:
        for items in (source.module.functions, source.module.variables):
            hidden |= {item.name: source.name for item in items if item.defined and not item.linkage}
    lines = [_explain_undefined_symbol(name, visible, hidden) for name in names[:_MAX_LISTED]]
    if len(names) > _MAX_LISTED:
        lines.append(f"... and {len(names) - _MAX_LISTED} more, in the attribute log.")
    inputs_without_symbols = [
        source.name for source in ptx_inputs if not any(symbol.defined for symbol in symbols(source))
    ]
    if inputs_without_symbols:
        lines.append(
            f"{', '.join(inputs_without_symbols)} defines no visible symbol; compile it with nvcc -rdc=true, "
            "without which unused device functions are dropped."
        )
    other_inputs = [source.name for source in sources if source.kind != PTX]
    if other_inputs:
        lines.append(
            f"Linkers ignore code in {', '.join(other_inputs)} that is not relocatable; compile it by nvcc "
            "-rdc=true or assemble(relocatable=True). If LTO-IR contains a kernel, linkers drop its "
            "functions that only PTX or cubins call; link both as LTO-IR, or neither."
        )
    return "\n".join([*lines, _TO_DEFINE])


def _explain_undefined_symbol(name: str, visible: Sequence[Symbol], hidden: Mapping[str, str]) -> str:
    """
    Return the explanation of one undefined symbol.

    Args:
        name: The symbol.
        visible: The symbols of all PTX inputs that other inputs can use.
        hidden: The input that defines a symbol without linkage, by the symbol.
    """
    declarations = [symbol for symbol in visible if symbol.name == name and not symbol.defined]
    users = ", ".join(symbol.origin for symbol in declarations)
    undefined = f"{name} is undefined{' in ' + users if users else ''}"
    if name in hidden:
        return (
            f"{undefined}, and {hidden[name]} defines it without linkage; declare it .visible there (CUDA "
            "C++: remove static)."
        )
    defined = {symbol.name: symbol.origin for symbol in visible if symbol.defined}
    if name in defined and not declarations:
        return (
            f"{name} is defined in {defined[name]}, and declared without .extern in another input; add "
            ".extern there."
        )
    similar = _similar_names(name, defined)
    if not similar:
        return f"{undefined}, and no input defines it."
    candidates = ", ".join(f"{candidate} in {defined[candidate]}" for candidate in similar)
    has_same_cxx_name = any(_demangled(candidate) == _demangled(name) for candidate in similar)
    hint = ': one of the two lacks extern "C"' if has_same_cxx_name else ", a similar name"
    return f"{undefined}, and no input defines it; there is {candidates}{hint}."


def _similar_names(name: str, defined: Collection[str]) -> list[str]:
    """Return at most three of the *defined* symbols: those with the same C++ name, then similar ones."""
    same_cxx_name = [candidate for candidate in defined if _demangled(candidate) == _demangled(name)]
    close_matches = difflib.get_close_matches(name, defined, n=3, cutoff=0.6)
    return list(dict.fromkeys((*same_cxx_name, *close_matches)))[:3]


def _demangled(name: str) -> str:
    """Return the C++ name of a mangled function outside of namespaces; other names unchanged."""
    match = _MANGLED.match(name)
    return match[2][: int(match[1])] if match else name
