"""Merge the PTX inputs of a link into one module and inline the calls between them, if that is possible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools.options import first_linker_flag
from numba_ptxlink.errors import LinkError

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink import cache
    from numba_ptxlink._tools.options import Options

    from .backends import Target


class Fusion(NamedTuple):
    """
    The inputs of a link, whose PTX may be merged into one module.

    Args:
        sources: The inputs before the merge, compiled and checked.
        inputs: The inputs after the merge, which a linker or compiler reads.
        summary: The merge in words, such as "2 PTX as one, 1 call inlined", or why nothing was merged; "" if
            there was nothing to merge, or the options switch merging off.
        merged_names: The names of the merged PTX inputs; empty if nothing was merged.
        inlined_calls: The number of inlined calls.
        remarks: The calls that were not inlined, and why; a line for each.
    """

    sources: tuple[Input, ...]
    inputs: tuple[Input, ...]
    summary: str = ""
    merged_names: tuple[str, ...] = ()
    inlined_calls: int = 0
    remarks: str = ""

    @classmethod
    def unmerged(cls, sources: Sequence[Input], reason: str = "") -> Fusion:
        """Return *sources* as they are, and the *reason* why they are not merged."""
        return cls(tuple(sources), tuple(sources), reason)


def fuse(sources: Sequence[Input], target: Target, options: Options) -> Fusion:
    """
    Return *sources* with their PTX merged into one module, if *options* allow it and it is possible.

    Args:
        sources: The inputs of a link, compiled and checked.
        target: The GPU and the CUDA release of the link. If the result is a single PTX module, its PTX
            version is reduced to one that the release reads.
        options: The options of the link.
    """
    fusion = _merge_if_possible(sources, options)
    # Without `reduce_version`, the code is for the CUDA release of this environment: PTX keeps its version.
    if target.reduce_version is None or [source.kind for source in fusion.inputs] != [PTX]:
        return fusion
    (ptx,) = fusion.inputs
    return fusion._replace(inputs=(replace(ptx, code=target.reduce_version(ptx.code, target.arch)),))


def _merge_if_possible(sources: Sequence[Input], options: Options) -> Fusion:
    """Merge the PTX among *sources*; if that is not possible, the summary has the reason."""
    ptx_inputs = [source for source in sources if source.kind == PTX]
    # "all" also inlines the calls inside one input. A linker that the caller names gets the inputs unmerged.
    min_inputs = 1 if options.inline_mode == "all" else 2
    if (
        options.inline_mode == "none"
        or len(ptx_inputs) < min_inputs
        or options.tool not in ("auto", "nvptxcompiler")
    ):
        return Fusion.unmerged(sources)
    if not_fusable_reason := _not_fusable_reason(ptx_inputs, options):
        return Fusion.unmerged(sources, not_fusable_reason)
    from numba_ptxlink import cache
    from numba_ptxlink._fusion import NotCombinedError

    # If all inputs are PTX, functions that no kernel calls can be dropped, and calls of weak functions
    # inlined. With lto, nvJitLink links the merged PTX even if it is alone: visible functions then stay.
    whole_program = len(ptx_inputs) == len(sources) and not options.lto
    inline_all = options.inline_mode == "all"
    key = cache.Key.of(
        "fuse",
        {
            "package": cache.package_version(),
            "inline": options.inline_mode,
            "whole program": str(whole_program),
            "inputs": [source.code for source in ptx_inputs],
        },
    )
    try:
        entry = cache.cached(
            key, lambda: _combine_and_inline(ptx_inputs, inline_all=inline_all, whole_program=whole_program)
        )
    # If the PTX cannot be read or merged here, nvJitLink links it, or reports the error.
    except (NotCombinedError, LinkError) as error:
        return Fusion.unmerged(sources, str(error))._replace(remarks=f"no call is inlined: {error}")
    names = tuple(source.name for source in ptx_inputs)
    count = int(entry.meta["inlined"])
    calls = "call" if count == 1 else "calls"
    # The merged PTX takes the place of the first PTX input.
    index = [source.kind for source in sources].index(PTX)
    other_inputs = (source for source in sources[index:] if source.kind != PTX)
    return Fusion(
        tuple(sources),
        (*sources[:index], Input(PTX, "+".join(names), entry.code), *other_inputs),
        f"{len(names)} PTX as one, {count} {calls} inlined",
        names,
        count,
        entry.log,
    )


def _not_fusable_reason(ptx_inputs: Sequence[Input], options: Options) -> str:
    """Return why *options* or the linker's flags forbid a merge of *ptx_inputs*; "" if they allow it."""
    if options.debug or not options.opt_level:
        return "debug information is kept" if options.debug else "the code is not optimised"
    if options.tool == "auto" and (flag := first_linker_flag(options.extra_flags)):
        return f"only nvJitLink has {flag}"
    if options.lineinfo:
        from numba_ptxlink._formats import ptx

        if any(ptx.has_line_numbers(source.text) for source in ptx_inputs):
            return "line numbers are kept"
    return ""


def _combine_and_inline(inputs: Sequence[Input], *, inline_all: bool, whole_program: bool) -> cache.Entry:
    """Return the merged PTX with its inlined calls; the keyword arguments are those of `inline`."""
    from numba_ptxlink import cache
    from numba_ptxlink._fusion.combine import combine
    from numba_ptxlink._fusion.inline import inline

    combined = combine([source.module for source in inputs])
    product = inline(combined, inline_all=inline_all, whole_program=whole_program)
    remarks = "\n".join(f"call not inlined: {reason}" for reason in product.not_inlined)
    return cache.Entry(
        {"log": remarks, "inlined": product.count}, product.text.encode(errors="surrogateescape")
    )
