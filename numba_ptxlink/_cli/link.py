"""Implement the command `link`: its arguments, and the report of the written file."""

from __future__ import annotations

import argparse
from typing import Any

from numba_ptxlink._config import BACKENDS, CHECKS, INLINE
from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink.errors import LinkError

from . import arguments as parsing
from . import output, report
from .output import Report

_EXAMPLES = (
    "link kernel.ptx -o kernel.cubin --arch sm_90",
    "link main.cu udfs.py -o app.cubin --arch sm_90 -I include",
    "link a.ltoir b.cu -o app.cubin --arch sm_90 --lto -v",
)

# Options of this command that the function `link` has under the same names.
_SAME_NAME_OPTIONS = (
    "arch",
    "lto",
    "debug",
    "lineinfo",
    "max_registers",
    "include_dirs",
    "cxx_standard",
    *parsing.ARITHMETIC,
    "fast_math",
    "name_expressions",
    "backend",
    "checks",
    "inline",
    "cuda",
    "ptx_isa",
    "front_end",
)


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    link = parsing.add_command(
        commands,
        "link",
        _link,
        "link PTX, LTO-IR, cubins, objects, CUDA C++ or Python",
        _EXAMPLES,
    )
    link.add_argument(
        "inputs",
        type=parsing.parse_path,
        nargs="+",
        metavar="INPUT",
        help="a file of PTX, LTO-IR, CUDA C++ or Python, a cubin or an object",
    )
    link.add_argument(
        "-o", "--output", type=parsing.parse_path, required=True, metavar="FILE", help="the output file"
    )
    link.add_argument("--arch", required=True, help='the GPU, such as "sm_90"')
    link.add_argument(
        "--lto",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="link-time optimisation (default: if an input is LTO-IR, or if several inputs are all C++ or "
        "Python)",
    )
    parsing.add_repeated(
        link,
        "-I",
        "--include-dir",
        metavar="DIR",
        type=parsing.parse_path,
        summary="a folder of headers for CUDA C++",
    )
    parsing.add_repeated(
        link, "-D", "--define", metavar="NAME[=VALUE]", summary="define a macro for CUDA C++"
    )
    link.add_argument("--std", dest="cxx_standard", metavar="STANDARD", help='such as "c++20"')
    parsing.add_repeated(
        link,
        "--name-expression",
        metavar="NAME",
        summary='instantiate a C++ name, such as "scale<float>", and report its symbol',
    )
    link.add_argument(
        "--inline",
        choices=INLINE,
        help="which calls between PTX inputs are inlined (default: NUMBA_PTXLINK_INLINE, or auto)",
    )
    link.add_argument(
        "--emit",
        choices=(CUBIN, PTX),
        default=CUBIN,
        help="the kind of output: a cubin, or one PTX module of all inputs (default: cubin)",
    )
    link.add_argument("--backend", choices=BACKENDS, help="the tool to use (default: NUMBA_PTXLINK_BACKEND)")
    link.add_argument(
        "--checks",
        choices=CHECKS,
        help="whether the declarations in one input are compared with those in the others, and with the "
        "manifests of exports (default: NUMBA_PTXLINK_CHECKS, or all)",
    )
    link.add_argument("--debug", "-g", action="store_true", help="keep debug information")
    link.add_argument("--lineinfo", action="store_true", help="keep line numbers")
    link.add_argument("--max-registers", type=int, metavar="N", help="maximum number of registers per thread")
    parsing.add_arithmetic(link)
    link.add_argument(
        "--fast-math",
        action="store_true",
        default=None,
        help="approximate arithmetic: --ftz --no-prec-div --no-prec-sqrt, and approximate functions",
    )
    parsing.add_cuda_release(link, "link")
    parsing.add_front_end(link)


def _link(arguments: argparse.Namespace) -> Report:
    from numba_ptxlink.linker import link

    output.check_output(arguments.output, arguments.inputs)
    # Text printed by imported Python files must not mix with the report, which may be JSON.
    with output.stdout_to_stderr():
        macros = [f"--define-macro={define}" for define in arguments.defines]
        options = {name: getattr(arguments, name) for name in _SAME_NAME_OPTIONS}
        linked = link(*arguments.inputs, nvrtc_flags=macros, **options)
    # `linked.reason` says why the backend was chosen. If the backend is a linker such as nvJitLink, the
    # inputs did not become one PTX module for the same reason.
    if arguments.emit == PTX and not linked.ptx:
        raise LinkError(
            f"The inputs did not become one PTX module: {linked.reason}; pass only PTX, CUDA C++ or Python, "
            "with --no-lto, --inline auto and --backend auto, without --debug and --lineinfo; or link "
            "without --emit ptx.",
            inputs=linked.inputs,
        )
    content = linked.cubin if arguments.emit == CUBIN else linked.ptx.encode(errors="surrogateescape")
    size_text = report.format_size(len(content))
    lines = [f"{arguments.output}  {size_text}, {linked.backend}: {linked.reason}"]
    # The text shows only those lines of the log that tell of calls not inlined; --json has the whole log.
    log = linked.log.splitlines()
    lines += [f"  {line}" for line in log if line.startswith("call not inlined")]
    lines += [f"  {expression}  {symbol}" for expression, symbol in linked.lowered_names.items()]
    output.write(arguments.output, content)
    fields = {
        "file": str(arguments.output),
        "size": len(content),
        "backend": linked.backend,
        "reason": linked.reason,
        "log": log,
        "inlined": linked.inlined,
        "names": dict(linked.lowered_names),
    }
    # If the output is a stream, such as /dev/stdout, the report goes to the standard error.
    return Report(fields, "\n".join(lines), to_stderr=output.is_stream(arguments.output))
