"""
Ask CUDA's compilers which names a generated header cannot use, and write them as a module of the package.

Run as a script, it downloads the toolkits in TOOLKITS and rewrites `numba_ptxlink/_cabi/compiler_names.py`.

The candidates are all identifiers in the toolkit's headers, in what nvcc makes of them, in NVRTC's libraries
and among GCC's built-in functions. Each is then put to the compilers themselves: nvcc's host pass and device
pass, NVRTC, and GCC for C and for C++ without nvcc.

Users may include any header of the standard libraries before a generated one, so nvcc and GCC are asked once
more with all of these; a macro without parameters is then taken everywhere unless it expands to itself. So is
nvcc of each toolkit with the headers of CUDA's driver and C++ libraries, which include NVTX's and by them the
system's where NVTX is installed, as in every full toolkit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._cabi import names as cnames
from numba_ptxlink._cabi.numbers import NUMBERS
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOME = Path(__file__).parents[2] / "numba_ptxlink" / "_cabi" / "compiler_names.py"
TOOLKITS = ("12.0", "12.4", "12.9", "13.0", "13.2", "13.5")
_PARTS = ("cuda-nvcc", "cuda-runtime", "cuda-nvrtc", "cuda-cccl", "nvtx")
_ARCH = "sm_90"
_WORD = re.compile(rb"[A-Za-z_]\w*")
# What the package reserves by rule, whatever the headers hold.
_BY_RULE = re.compile(r"__|_[A-Z]")
# A generated header includes these.
_HEADERS = dict.fromkeys(row.header for row in NUMBERS.values() if row.header)
_CXX = ("stdint.h", *_HEADERS, "numba_ptxlink/array_view.h")
_IN_C = dict.fromkeys(row.header for row in NUMBERS.values() if row.header and row.element)
_C = ("stdint.h", "stdbool.h", "assert.h", "stdalign.h", *_IN_C)
# ISO/IEC 9899:2018 clause 7.
_STANDARD_C = tuple(
    f"{name}.h"
    for name in (
        *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale"),
        *("math", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint"),
        *("stdio", "stdlib", "stdnoreturn", "string", "tgmath", "threads", "time", "uchar", "wchar"),
        "wctype",
    )
)
# ISO/IEC 14882:2020 headers, and those of C that C++ has under their own names.
_STANDARD_CXX = (
    *("algorithm", "any", "array", "atomic", "barrier", "bit", "bitset", "charconv", "chrono", "codecvt"),
    *("compare", "complex", "concepts", "condition_variable", "coroutine", "deque", "exception"),
    *("execution", "filesystem", "format", "forward_list", "fstream", "functional", "future"),
    *("initializer_list", "iomanip", "ios", "iosfwd", "iostream", "istream", "iterator", "latch", "limits"),
    *("list", "locale", "map", "memory", "memory_resource", "mutex", "new", "numbers", "numeric"),
    *("optional", "ostream", "queue", "random", "ranges", "ratio", "regex", "scoped_allocator"),
    *("semaphore", "set", "shared_mutex", "source_location", "span", "sstream", "stack", "stdexcept"),
    *("stop_token", "streambuf", "string", "string_view", "strstream", "syncstream", "system_error"),
    *("thread", "tuple", "type_traits", "typeindex", "typeinfo", "unordered_map", "unordered_set"),
    *("utility", "valarray", "variant", "vector", "version", "cassert", "cctype", "cerrno", "cfenv"),
    *("cfloat", "cinttypes", "climits", "clocale", "cmath", "csetjmp", "csignal", "cstdarg", "cstddef"),
    *("cstdint", "cstdio", "cstdlib", "cstring", "ctime", "cuchar", "cwchar", "cwctype"),
    *(name for name in _STANDARD_C if name not in {"stdatomic.h", "stdnoreturn.h", "threads.h"}),
)
_DEFINED = re.compile(r"^#define ([A-Za-z_]\w*)(\(?)[^\S\n]*(.*)$", re.MULTILINE)
# What CUDA C++ may include beyond what nvcc does by itself.
OF_CUDA = (
    *(
        "cuda.h",
        "cooperative_groups.h",
        "cooperative_groups/reduce.h",
        "cooperative_groups/memcpy_async.h",
        "mma.h",
        # CUB leaves it out where it is missing; an error tells of that here.
        "nvtx3/nvToolsExt.h",
    ),
    *("cuda_pipeline.h", "cuda_awbarrier.h", "cub/cub.cuh", "thrust/device_vector.h", "thrust/sort.h"),
    *("cuda/std/atomic", "cuda/std/complex", "cuda/barrier", "cuda/pipeline", "cuda/atomic", "nv/target"),
)
# A declaration of any of these shapes is on one line, which the diagnostics name.
_GLOBAL = "namespace probe_{name} {{ using ::{name}; }}"
_FUNCTION = 'extern "C" {space} probe_value {name}(probe_value);'
_C_FUNCTION = "struct probe_value {name}(struct probe_value);"
_LOCAL = "struct probe_of_{name} {{ int {name}; }}; int probe_by_{name}(int {name});"
_MACRO = "#ifdef {name}\nprobe_nothing probe_of_{name};\n#endif"
# nvcc's default is GNU's dialect, which has macros of its own.
_STANDARDS = ((), ("-std=c++20",))
_VALUE = "struct probe_value { int bits; };"


@dataclass(frozen=True)
class Taken:
    """
    Names that a generated header cannot use.

    Args:
        everywhere: Those that cannot name a parameter or a member: keywords, and macros that are replaced.
        outside: Those that cannot name a function or a struct: they are declared or defined otherwise.
    """

    everywhere: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()

    def __or__(self, other: Taken) -> Taken:
        return Taken(self.everywhere | other.everywhere, self.outside | other.outside)


@dataclass(frozen=True)
class Toolkit:
    """
    One release of CUDA's compilers and headers.

    Args:
        version: Such as "12.4".
        nvcc: The program; of another release where the packages of this one have none.
        nvrtc: The library.
        include_dirs: The headers of this release.
    """

    version: str
    nvcc: Path
    nvrtc: Path
    include_dirs: tuple[Path, ...]


def taken(toolkit: Toolkit) -> Taken:
    """Return the names that the compilers of *toolkit* refuse, or understand in another way."""
    with tempfile.TemporaryDirectory() as folder:
        names = candidates(toolkit, Path(folder))
        answers = [ask(compiler, names) for compiler in compilers(toolkit, Path(folder))]
    joined = Taken()
    for answer in answers:
        joined |= answer
    return joined


def standard(toolkit: Toolkit) -> Taken:
    """Return the names that nvcc and GCC take once all headers of the standard libraries are included."""
    joined = Taken()
    with tempfile.TemporaryDirectory() as folder:
        for compiler, preprocess in standard_compilers(toolkit, Path(folder)):
            joined |= ask_standard(compiler, preprocess)
    return joined


def libraries(toolkit: Toolkit) -> Taken:
    """Return the names that nvcc takes once the headers of CUDA's driver and C++ libraries are included."""
    with tempfile.TemporaryDirectory() as folder:
        compiler, preprocess = library_compiler(toolkit, Path(folder))
        return ask_standard(compiler, preprocess)


def library_compiler(toolkit: Toolkit, folder: Path) -> tuple[Compiler, Callable[..., str]]:
    """Return nvcc with the headers of CUDA's libraries, and its preprocessor as of `standard_compilers`."""

    def nvcc(*options):
        return lambda source: _nvcc(toolkit, folder, source, "-std=c++17", *options)

    text, definitions = nvcc("-E"), nvcc("-E", "-Xcompiler", "-dM")
    device = _FUNCTION.replace("{space}", "__device__")
    return (
        Compiler(nvcc("-cuda"), _includes((*_CXX, *OF_CUDA)), device),
        lambda source, what="text": (definitions if what == "definitions" else text)(source),
    )


def standard_compilers(toolkit: Toolkit, folder: Path) -> list[tuple[Compiler, Callable[..., str]]]:
    """
    Return the passes to ask about the standard libraries: nvcc, and GCC for C++ and for C.

    Each comes with its preprocessor, called with a source and "definitions" for the macros alone.
    """
    cxx = _includes((*_CXX, *standard_headers(".cpp")))
    device, host = _FUNCTION.replace("{space}", "__device__"), _FUNCTION.replace("{space} ", "")
    check = ("-fsyntax-only", "-Wbuiltin-declaration-mismatch")

    def nvcc(*options):
        return lambda source: _nvcc(toolkit, folder, source, "-std=c++20", *options)

    def gcc(suffix, *options):
        std = () if suffix == ".c" else ("-std=c++20",)
        return lambda source: _gcc(toolkit, folder, source, suffix, *std, *options)

    def preprocessor(text, definitions):
        return lambda source, what="text": (definitions if what == "definitions" else text)(source)

    c = _includes((*_C, *standard_headers(".c")))
    return [
        (Compiler(nvcc("-cuda"), cxx, device), preprocessor(nvcc("-E"), nvcc("-E", "-Xcompiler", "-dM"))),
        (Compiler(gcc(".cpp", *check), cxx, host), preprocessor(gcc(".cpp", "-E"), gcc(".cpp", "-E", "-dM"))),
        (
            Compiler(gcc(".c", *check), c, _C_FUNCTION, cxx=False),
            preprocessor(gcc(".c", "-E"), gcc(".c", "-E", "-dM")),
        ),
    ]


def ask_standard(compiler: Compiler, preprocess: Callable[..., str]) -> Taken:
    """Return what *compiler* takes of all the names in what its preprocessor makes of its prologue."""
    words, replaced = preprocessed(compiler, preprocess)
    return ask(compiler, words) | replaced


def preprocessed(compiler: Compiler, preprocess: Callable[..., str]) -> tuple[list[str], Taken]:
    """Return the names in what the preprocessor makes of a prologue, and the macros that it replaces."""
    definitions = preprocess(compiler.prologue, "definitions")
    words = set(_WORD.findall((preprocess(compiler.prologue) + definitions).encode()))
    # A probe cannot tell: `int (*__errno_location ());` declares something else.
    replaced = {
        macro[1].encode()
        for macro in _DEFINED.finditer(definitions)
        if not macro[2] and macro[1] != macro[3].strip()
    }
    return _ruled(words), Taken(frozenset(_ruled(replaced)))


def _ruled(words: set[bytes]) -> list[str]:
    """Return those of *words* that no rule reserves, sorted."""
    return sorted(name for word in words if not _BY_RULE.match(name := word.decode()) and len(name) < 64)


def standard_headers(suffix: str) -> tuple[str, ...]:
    """Return the headers of the standard library of C (".c") or C++ that the compiler has."""
    program, headers = ("gcc", _STANDARD_C) if suffix == ".c" else ("g++", _STANDARD_CXX)
    command = [program, *(() if suffix == ".c" else ("-std=c++20",)), "-E", "-x"]
    command += ["c" if suffix == ".c" else "c++", "-"]
    probe = "".join(f"#if __has_include(<{header}>)\nheld <{header}>\n#endif\n" for header in headers)
    run = subprocess.run(command, input=probe, capture_output=True, text=True, check=True)
    return tuple(header for header in headers if f"held <{header}>" in run.stdout)


def candidates(toolkit: Toolkit, folder: Path) -> list[str]:
    """Return every identifier that a header or compiler of *toolkit* can have heard of."""
    texts = [
        path.read_bytes()
        for directory in (*toolkit.include_dirs, INCLUDE_DIR)
        for path in directory.rglob("*")
        if path.suffix in {".h", ".hpp"} and "cccl" not in path.parts and path.is_file()
    ]
    libraries = [path.read_bytes() for path in toolkit.nvrtc.parent.glob("libnvrtc*") if path.is_file()]
    texts += [b" ".join(re.findall(rb"(?<=\0)[A-Za-z_]\w+(?=\0)", library)) for library in libraries]
    for options in (("-E",), ("-E", "-Xcompiler", "-dM")):
        texts.append(_nvcc(toolkit, folder, _includes(_CXX), *options).encode())
    for headers, suffix in ((_CXX, ".cpp"), (_C, ".c")):
        for options in (("-E",), ("-E", "-dM")):
            texts.append(_gcc(toolkit, folder, _includes(headers), suffix, *options).encode())
    program = subprocess.run(
        [shutil.which("g++") or "g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True
    )
    texts.append(b" ".join(re.findall(rb"__builtin_(\w+)", Path(program.stdout.strip()).read_bytes())))
    return _ruled({word for text in texts for word in _WORD.findall(text)})


@dataclass(frozen=True)
class Compiler:
    """
    One pass of a compiler over a source.

    Args:
        log: Maps a source to the compiler's diagnostics.
        prologue: What the source begins with.
        function: The declaration of a function.
        cxx: Whether the language is C++.
        at_once: How many probes a source holds at most.
    """

    log: Callable[[str], str]
    prologue: str
    function: str
    cxx: bool = True
    at_once: int = 1_000_000


def compilers(toolkit: Toolkit, folder: Path) -> list[Compiler]:
    """Return the passes to ask, which write their sources to *folder*."""

    def nvcc(*options):
        return lambda source: _nvcc(toolkit, folder, source, *options)

    def gcc(suffix):
        options = ("-fsyntax-only", "-Wbuiltin-declaration-mismatch")
        return lambda source: _gcc(toolkit, folder, source, suffix, *options)

    def nvrtc(source):
        return nvrtc_log(toolkit, source)

    device = _FUNCTION.replace("{space}", "__device__")
    host = _FUNCTION.replace("{space} ", "")
    cxx = _includes(_CXX)
    return [
        *(Compiler(nvcc(stage, *std), cxx, device) for stage in ("-cuda", "-ptx") for std in _STANDARDS),
        # NVRTC's log ends after some 14000 errors.
        Compiler(nvrtc, _includes(_CXX[1:]), device, at_once=4000),
        Compiler(nvrtc, "", device, at_once=4000),
        Compiler(gcc(".cpp"), cxx, host),
        Compiler(gcc(".c"), _includes(_C), _C_FUNCTION, cxx=False),
    ]


def ask(compiler: Compiler, names: list[str]) -> Taken:
    """Return those of *names* that *compiler* refuses or knows."""
    local = _refused(compiler, names, _LOCAL)
    rest = [name for name in names if name not in local]
    macros = _refused(compiler, rest, _MACRO)
    rest = [name for name in rest if name not in macros]
    known = set(rest) - _refused(compiler, rest, _GLOBAL) if compiler.cxx else set()
    rest = [name for name in rest if name not in known]
    refused = _refused(compiler, rest, compiler.function)
    return Taken(frozenset(local), frozenset(macros | known | refused))


def _refused(compiler: Compiler, names: list[str], shape: str) -> set[str]:
    """Return the names whose probe of this *shape* has a diagnostic."""
    refused: set[str] = set()
    for start in range(0, len(names), compiler.at_once):
        chunk = names[start : start + compiler.at_once]
        probes = [shape.format(name=name) for name in chunk]
        height = probes[0].count("\n") + 1
        end = '#line 1 "end"\nint probe_end(probe_nothing);\n'
        text = "\n".join([compiler.prologue, _VALUE, '#line 1 "probe"', *probes, end])
        log = compiler.log(text)
        if not re.search(r"^end[(:]1\b", log, re.MULTILINE):
            raise RuntimeError(f"The compiler has not reached the end of the probes:\n{log[:2000]}")
        lines = {int(line) for line in re.findall(r"^probe[(:](\d+)", log, re.MULTILINE)}
        refused |= {chunk[(line - 1) // height] for line in lines}
    return refused


def _includes(headers: tuple[str, ...]) -> str:
    return "".join(f"#include <{header}>\n" for header in headers)


def _nvcc(toolkit: Toolkit, folder: Path, source: str, *options: str) -> str:
    path = folder / "probe.cu"
    path.write_text(source)
    limit = ("-Xcudafe", "--error_limit=100000", "-Xcicc", "--error_limit=100000")
    where = [option for path in (INCLUDE_DIR, *toolkit.include_dirs) for option in ("-I", str(path))]
    out = () if "-E" in options else ("-o", "/dev/null")
    return _run([str(toolkit.nvcc), f"-arch={_ARCH}", *limit, *where, *options, *out, str(path)])


def _gcc(toolkit: Toolkit, folder: Path, source: str, suffix: str, *options: str) -> str:
    path = folder / f"probe{suffix}"
    path.write_text(source)
    where = [option for path in (INCLUDE_DIR, *toolkit.include_dirs) for option in ("-isystem", str(path))]
    return _run(["gcc" if suffix == ".c" else "g++", "-fmax-errors=0", *options, *where, str(path)])


def _run(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, check=False)
    if run.returncode and "-E" in command:
        raise RuntimeError(f"{' '.join(command)}\n{run.stderr.decode(errors='replace')[:2000]}")
    return (run.stdout if "-E" in command else run.stdout + run.stderr).decode(errors="replace")


def nvrtc_log(toolkit: Toolkit, source: str) -> str:
    """Return what NVRTC of *toolkit* says about *source*; in a process of its own, because releases clash."""
    where = [f"-I{path}" for path in (INCLUDE_DIR, *toolkit.include_dirs)]
    options = ["-Xcudafe=--error_limit=100000", f"-arch={_ARCH}", "-rdc=true", "-default-device", *where]
    program = Path(__file__).with_name("nvrtc_program.py")
    command = [sys.executable, "-IS", str(program), str(toolkit.nvrtc), *options]
    # Some releases look for their built-ins on the search path alone.
    path = {**os.environ, "LD_LIBRARY_PATH": str(toolkit.nvrtc.parent)}
    run = subprocess.run(command, input=source.encode(), capture_output=True, check=True, env=path)
    return run.stdout.decode()


def installed() -> Toolkit:
    """Return the toolkit beside the tests."""
    import nvidia

    return _toolkit(Path(next(iter(nvidia.__path__))).parent)


def download(version: str, folder: Path) -> Toolkit:
    """Return the toolkit *version*, installed from the package index below *folder*."""
    major = version.partition(".")[0]
    parts = [*_PARTS, "cuda-crt", "nvvm"] if int(major) >= 13 else [f"{part}-cu{major}" for part in _PARTS]
    # CCCL is released apart from the toolkit.
    packages = [f"nvidia-{part}=={major if 'cccl' in part else version}.*" for part in parts]
    target = folder / version
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), *packages]
    if not target.exists():
        subprocess.run(command, check=True)
    return _toolkit(target)


def _toolkit(site: Path) -> Toolkit:
    nvrtc = next(iter(sorted(site.glob("nvidia/*/lib/libnvrtc.so.*"))))
    metadata = next(iter(site.glob("nvidia_cuda_nvrtc*.dist-info")))
    version = ".".join(metadata.name.partition("-")[2].split(".")[:2])
    roots = sorted({path.parent for path in site.glob("nvidia/*/include")})
    include_dirs = [path for root in roots for path in (root / "include", root / "include" / "cccl")]
    nvcc = next(iter(site.glob("nvidia/*/bin/nvcc")), None)
    if nvcc is None:
        # The packages of CUDA 12 hold the headers, not the front end: the installed one reads them.
        nvcc = _transplanted(site, installed().nvcc)
    return Toolkit(version, nvcc, nvrtc, tuple(path for path in include_dirs if path.is_dir()))


def _transplanted(site: Path, nvcc: Path) -> Path:
    """Return a copy of *nvcc* that has no headers of its own."""
    folder = site / "front_end" / "bin"
    if not folder.exists():
        folder.mkdir(parents=True)
        for path in nvcc.parent.iterdir():
            (shutil.copy if path.name.startswith("nvcc") else os.symlink)(path, folder / path.name)
        (folder.parent / "nvvm").symlink_to(nvcc.parents[1] / "nvvm")
    return folder / "nvcc"


def render(names: Taken, versions: Sequence[str]) -> str:
    """Return the text of the module that holds *names*."""
    blocks = [
        '"""The names that compilers of CUDA take: generated by tests/helpers/compiler_names.py."""',
        "",
        "from __future__ import annotations",
        "",
        f"TOOLKITS = {tuple(versions)!r}".replace("'", '"'),
    ]
    by_rule = {name for name in names.everywhere | names.outside if cnames.LIBRARIES.match(name)}
    for title, note, group in (
        ("EVERYWHERE", "Keywords and macros: no declaration can use them.", names.everywhere - by_rule),
        (
            "OUTSIDE",
            "Declared or defined otherwise: no function or struct can have them.",
            {name for name in names.outside - names.everywhere - by_rule if not cnames.RUNTIME.match(name)},
        ),
    ):
        text = textwrap.fill(" ".join(sorted(group)), 110)
        blocks.append(f'# {note}\n{title} = """\n{text}\n"""')
    return "\n".join(blocks) + "\n"


def main() -> None:
    """Rewrite the module."""
    names = Taken()
    versions = []
    with tempfile.TemporaryDirectory() as folder:
        for version in TOOLKITS:
            toolkit = download(version, Path(sys.argv[1] if sys.argv[1:] else folder))
            answer = taken(toolkit) | libraries(toolkit)
            sys.stdout.write(f"{version}: {len(answer.everywhere)} {len(answer.outside)}\n")
            names |= answer
            versions.append(toolkit.version)
    names |= standard(installed())
    HOME.write_text(render(names, versions))


if __name__ == "__main__":
    main()
