"""
Explain why a link failed and how to correct it, after the linker has refused it.

The linker's log names only a number or a mangled symbol. The inputs' headers and symbols tell the rest.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats import containers, elf, ltoir
from numba_ptxlink._formats.kinds import ARCHIVE, CU, CUBIN, FATBIN, LTOIR, OBJECT, PTX, recognise
from numba_ptxlink.errors import ConfigError, LinkError

from . import left_out, symbols
from .checks import check, unread, upgrade
from .definitions import several_definitions
from .inputs import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .symbols import Table

_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern (?:function|variable)) '([^']+)'")
# LLVM's linker, of LTO-IR.
_TWICE = re.compile("Linking globals named '([^']+)': symbol multiply defined")
_NO_LTOIR = "NVVM_ERROR_NO_MODULE_IN_PROGRAM"
_LTO_OFF = "LTO-IR input cannot be used without LTO enabled"
_UNKNOWN_FLAG = "Unknown option"
_TO_DEFINE = "Add the input that defines it, or correct the name."
_FLAGS = "extra_flags"
_STRUCTS_LOST = "Alignment of argument does not match formal parameter"
_MANGLED = re.compile(r"_Z(\d+)(\w+)")
_UNREADABLE = "bad input"
NEWER = "may need newer version of nvJitLink"
_MOST = 5
# The container of CUDA 12.9, the last release of CUDA 12.
LAST_OF_CUDA_12 = (1, 64)


def cure(
    failure: str,
    inputs: Sequence[Input],
    arch: Arch,
    linker: tuple[int, int],
    package: str,
    *,
    lto: bool = False,
    checks: str = "cheap",
) -> str:
    """
    Return how to correct a failed link, "" where that is not known.

    Args:
        failure: The linker's log.
        inputs: The inputs of the link.
        arch: The architecture of the link.
        linker: nvJitLink's version.
        package: The package to upgrade where nvJitLink is too old.
        lto: Whether the link optimised.
        checks: As for `check`. Any but "none" may compile an input just for the message.
    """
    lines = [
        line
        for source in inputs
        for line in (
            _damaged(source, failure),
            _too_new(source, failure, linker, package, inputs),
            _misfit(source, arch),
            _made_by_newer(source, failure, arch, linker, package),
        )
    ]
    if any(lines):
        return "\n".join(filter(None, lines))
    if checks == "cheap" and unread(inputs, checks):
        try:
            check(inputs, arch, linker, package, lto=lto, checks="all")
        except LinkError as error:
            return str(error)
    asked = _misasked(failure, arch)
    if asked:
        return asked
    twice = _TWICE.search(failure)
    if twice is not None:
        return _explain_twice(twice[1], inputs, arch, lto=lto, deep=checks != "none")
    tables: list[Table] = []
    if _UNDEFINED.search(failure):
        tables = [symbols.table(source, arch, lto=lto, deep=checks != "none") for source in inputs]
        skipped = left_out.left_out(inputs, arch, lto=lto, checks="none" if checks == "none" else "all")
        return "\n".join(filter(None, (explain(failure, tables, package), *map(str, skipped))))
    return explain(failure, tables, package)


def explain(log: str, tables: Sequence[Table], package: str = "nvidia-nvjitlink") -> str:
    """
    Return how to correct the errors in the linker's *log*, "" where that is not known.

    Args:
        log: The linker's log.
        tables: The symbols of the inputs.
        package: The package that brings the linker.
    """
    if _STRUCTS_LOST in log:
        # No release of CUDA 12 is new enough.
        upgrade = f"Upgrade it with `pip install --upgrade {package}`, or link the PTX of one of them."
        return "nvJitLink before 13.2 can lose track of the types of inputs that have many structs. " + (
            "Link the PTX of one of them." if package.endswith("-cu12") else upgrade
        )
    return _explain_undefined(log, tables)


def for_kernel(message: str, flags: str = _FLAGS) -> str:
    """
    Return *message* about the link of a kernel in the words of its front end.

    Args:
        message: What an error says, in the words of `link`.
        flags: The front end's name for the flags of ptxas.
    """
    defined = "Give the file that defines it to link= of declare_device or jit, or correct the name."
    return message.replace(_TO_DEFINE, defined).replace(_FLAGS, flags)


def _misasked(failure: str, arch: Arch) -> str:
    """Return which option to correct, "" where *failure* is not about one."""
    if _UNKNOWN_FLAG in failure:
        return f"Correct or remove that flag in {_FLAGS}."
    if _NO_LTOIR in failure:
        return (
            "None of the inputs is LTO-IR, and there is nothing to optimise at link time: leave lto out, or "
            "give LTO-IR or CUDA C++ in place of one."
        )
    if _LTO_OFF in failure:
        return (
            f"Nothing but LTO-IR fits {arch.sm} in one of the inputs: leave lto=False out, or compile "
            f"machine code into it, too (nvcc -gencode arch=compute_{arch},code={arch.sm})."
        )
    return ""


def _explain_twice(name: str, inputs: Sequence[Input], arch: Arch, *, lto: bool, deep: bool) -> str:
    tables = [symbols.table(source, arch, lto=lto, deep=deep) for source in inputs]
    places = [
        table.name
        for table in tables
        if any(symbol.name == name and symbol.defined and not symbol.weak for symbol in table.symbols or ())
    ]
    return several_definitions(name, places, ltoir=True) if len(places) > 1 else ""


def _explain_undefined(log: str, tables: Sequence[Table]) -> str:
    names = list(dict.fromkeys(_UNDEFINED.findall(log)))
    defined = {
        symbol.name: table.name for table in tables for symbol in table.symbols or () if symbol.defined
    }
    lines = []
    for name in names[:_MOST]:
        users = [
            table.name
            for table in tables
            if any(symbol.name == name and not symbol.defined for symbol in table.symbols or ())
        ]
        asked = f"{name} is asked for{' by ' + ', '.join(users) if users else ''}"
        if name in defined:
            lines.append(
                f"{asked} and defined in {defined[name]}, out of which the linker dropped it: where LTO-IR "
                "holds a kernel, it takes for unused what only PTX or machine code calls. Give both as "
                "LTO-IR, or neither, or keep the kernels out of that LTO-IR."
            )
            continue
        hidden = next((table.name for table in tables if name in table.hidden), None)
        if hidden is not None:
            lines.append(
                f"{asked} and defined in {hidden}, which keeps it to itself. Make it .visible there; in CUDA "
                "C++, not static."
            )
            defined[name] = hidden
            continue
        if _is_shared(name, tables):
            lines.append(
                f"{asked} and defined in no input. Shared memory that a launch sizes is declared without a "
                "length, extern __shared__ T name[], and any other not as extern."
            )
            defined[name] = ""
            continue
        line = f"{asked} and defined in no input"
        near = _near(name, defined)
        if near:
            line += "; there is " + ", ".join(f"{candidate} in {defined[candidate]}" for candidate in near)
            line += (
                ': one of the two lacks extern "C".'
                if any(_plain(candidate) == _plain(name) for candidate in near)
                else ": is that one meant?"
            )
        lines.append(line if near else f"{line}.")
    if not names:
        return ""
    if len(names) > _MOST:
        lines.append(f"... and {len(names) - _MOST} more, in the attribute log.")
    if not defined.keys() >= set(names):
        lines.append(_TO_DEFINE)
    return "\n".join(lines)


def _is_shared(name: str, tables: Sequence[Table]) -> bool:
    return any(
        symbol.name == name and symbol.space == "shared" for table in tables for symbol in table.symbols or ()
    )


def _near(name: str, defined: dict[str, str]) -> list[str]:
    same = [candidate for candidate in defined if _plain(candidate) == _plain(name)]
    close = difflib.get_close_matches(name, defined, n=3, cutoff=0.6)
    plain = difflib.get_close_matches(_plain(name), map(_plain, defined), n=3, cutoff=0.75)
    close += [candidate for candidate in defined if _plain(candidate) in plain]
    return list(dict.fromkeys((*same, *close)))[:3]


def _plain(name: str) -> str:
    """Return the plain name inside a simple mangled symbol, *name* itself where it is not one."""
    match = _MANGLED.match(name)
    return match[2][: int(match[1])] if match else name


def _damaged(source: Input, failure: str) -> str:
    """Return a message that *source* is not what it is given as, "" where it is."""
    if not source.code:
        return f"{source.name} is empty; generate or copy it again."
    if not (_UNREADABLE in failure or f"{source.name}: parse " in failure):
        return ""
    if source.kind == LTOIR and recognise(source.code) == LTOIR:
        whole = f"{source.name}: parse " not in failure and ltoir.read(source.code) is not None
        return "" if whole else f"{source.name} is not a whole LTO-IR container; generate or copy it again."
    content = recognise(source.code)
    if content == source.kind:
        return ""
    if content in (None, CU):
        from numba_ptxlink._formats import texts

        content = texts.describe(source.code)
    return (
        f"{source.name} is given as {source.kind}, and its content is {content}; generate or copy it again."
    )


def _too_new(
    source: Input, failure: str, linker: tuple[int, int], package: str, inputs: Sequence[Input]
) -> str:
    """Return a message that *source* is newer than the linker reads, "" where that is not known."""
    version = _ltoir_version(source) if NEWER in failure else None
    if version is None or version < max(filter(None, map(_ltoir_version, inputs))):
        return ""
    cure = upgrade(linker, package, of_cuda_13=version > LAST_OF_CUDA_12)
    holds = "is" if source.kind == LTOIR else "holds"
    return (
        f"{source.name} {holds} LTO-IR of container version {dotted(version)}, which nvJitLink "
        f"{dotted(linker)} does not read; {cure}"
    )


def _made_by_newer(source: Input, failure: str, arch: Arch, linker: tuple[int, int], package: str) -> str:
    """Return a message that machine code in *source* is newer than the linker, "" where that is not known."""
    if _UNREADABLE not in failure:
        return ""
    made = _toolkit(source, arch)
    if made is None or made <= linker:
        return ""
    holds = "is" if source.kind == CUBIN else "holds"
    return (
        f"{source.name} {holds} machine code of CUDA {dotted(made)}, which nvJitLink {dotted(linker)} does "
        "not read; link its PTX or CUDA C++ in its place, or "
        f"{upgrade(linker, package, of_cuda_13=made >= (13, 0))}"
    )


def _toolkit(source: Input, arch: Arch) -> tuple[int, int] | None:
    """Return the release of CUDA that made the machine code in *source*, the newest, None where unknown."""
    codes = [source.code] if source.kind == CUBIN else []
    try:
        for entries in containers.fatbins(source.code, source.kind, source.name):
            entry = containers.chosen(entries, arch, lto=False)
            codes += [entry.content() or b""] if entry and entry.kind == CUBIN else []
        return max(filter(None, (elf.read(code).toolkit for code in codes)), default=None)
    except LinkError:
        return None


def _ltoir_version(source: Input) -> tuple[int, int] | None:
    """Return the newest version of LTO-IR in *source*, None where there is none."""
    if source.kind == LTOIR:
        header = ltoir.read(source.code)
        return header.container if header else None
    try:
        fatbins = containers.fatbins(source.code, source.kind, source.name)
    except LinkError:
        return None
    versions = [entry.version for entries in fatbins for entry in entries if entry.kind == LTOIR]
    return max(versions, default=None)


def _misfit(source: Input, arch: Arch) -> str:
    """Return a message that *source* does not run on *arch*, "" where it does or that is not known."""
    if source.kind in containers.CONTAINERS:
        return _misfit_of_container(source, arch)
    if source.kind == PTX:
        target = source.header.target
        try:
            needs = Arch.of(target[0]) if target else None
        except ConfigError:
            return ""  # nvJitLink's own message names the mistake
        if needs is None or _runs_on(needs, arch):
            return ""
        holds = f"PTX for {needs.sm}"
    else:
        header = ltoir.read(source.code) if source.kind == LTOIR else None
        if header is None or header.sm <= arch.number:
            return ""
        holds = f"LTO-IR for sm_{header.sm}"
    return (
        f"{source.name} holds {holds}, which does not run on {arch.sm}, the architecture of this link; "
        f"generate it for {arch.sm} or an older one, or link for its own."
    )


def _misfit_of_container(source: Input, arch: Arch) -> str:
    if source.kind == ARCHIVE:
        members = [
            Input(kind, f"{source.name}({title})", content)
            for title, content in containers.members(source.code, source.name)
            if (kind := recognise(content)) in (OBJECT, FATBIN)
        ]
        return "\n".join(filter(None, (_misfit(member, arch) for member in members)))
    try:
        fatbins = containers.fatbins(source.code, source.kind, source.name)
    except LinkError:
        return ""
    for entries in fatbins:
        if entries and containers.chosen(entries, arch, lto=True) is None:
            held = ", ".join(dict.fromkeys(f"{entry.arch} ({entry.kind})" for entry in entries))
            return (
                f"{source.name} holds no code for {arch.sm}, the architecture of this link; it has {held}. "
                f"Compile it for {arch.sm} too (nvcc -gencode arch=compute_{arch.sm[3:]},code={arch.sm}), or "
                "link for one of its own."
            )
    return ""


def _runs_on(needs: Arch, arch: Arch) -> bool:
    if needs.variant == "a":
        return needs == arch
    if needs.variant == "f":
        return needs.major == arch.major and needs.number <= arch.number
    return needs.number <= arch.number
