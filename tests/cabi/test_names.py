"""Names: what the compilers take is refused or replaced, and what is accepted compiles."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import namedtuple
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import compiler_names
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink._cabi import compiler_names as listed
from numba_ptxlink._cabi import header, names, proof
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from pathlib import Path

LISTED = {*listed.EVERYWHERE.split(), *listed.OUTSIDE.split()}
FLOAT = c.number("float")
F32 = types.float32
# What a user might call a function: the words of arithmetic, of arrays and of physics, in no order.
PLAUSIBLE = """
    add sub mul div mod neg abs sign clip clamp lerp mix step smoothstep select where any all none count sum
    prod mean var std median min max argmin argmax sort unique dot cross norm length distance normalize
    reflect rotate transpose inverse det trace solve fit predict score loss relu gelu silu sigmoid softmax
    tanh_ gamma beta lgamma zeta erf j0 y1 yn jn bessel half floor ceil round trunc rint frac fdivide fdim
    hypot cbrt exp10 log2 ldexp frexp rand random drand48 srand seed sample noise hash time clock timer date
    day hour tick delay wait sleep pause read write open close send recv bind listen accept connect index
    rindex find search insert remove erase push pop swap copy move fill init reset update apply map reduce
    scan filter scatter gather load store get set put nan inf pi e tau size_t float4 dim3 int3 ulong uint
    byte word string list vector matrix tensor array buffer node edge graph tree heap stack queue block
    thread grid warp lane vote ballot shfl sync barrier fence atomic_add potential force energy mass charge
    spin field wave flux density pressure temperature velocity accel kick drift system exit abort signal
    raise_ kill link unlink stat access conj real imag polar proj cabs creal major minor unix linux NULL NAN
    INFINITY HUGE_VAL stdin stdout errno assert EOF M_PI cuda cub thrust nv cudaMalloc main printf puts
    malloc free memcpy memset strlen signbit isnan isinf isfinite tex2D atomicAdd threadIdx warpSize i j k n
    m x y z a b c d f g h p q r s t u v w acospi rootn powr udf kernel scale damp saxpy axpy blend
""".split()  # noqa: SIM905
# Macros, keywords, types, functions and variables, of CUDA, C and the generated headers.
HOSTILE = (
    *("unix", "linux", "NULL", "NAN", "INFINITY", "HUGE_VAL", "stdin", "errno", "assert", "M_PI", "INT_MAX"),
    *(
        "float3",
        "size_t",
        "int32_t",
        "__half",
        "half",
        "dim3",
        "threadIdx",
        "sin",
        "gamma",
        "major",
        "signbit",
    ),
    *(
        "new",
        "int",
        "restrict",
        "asm",
        "typeof",
        "bool",
        "true",
        "__x",
        "_Bad",
        "CUDART_VERSION",
        "cudaMalloc",
    ),
    *(
        "numba_ptxlink",
        "NUMBA_PTXLINK_DEVICE",
        "padding0_",
        "padding1_",
        "cudaHostAllocDefault",
        "I",
        "complex",
    ),
)


@pytest.fixture(scope="module")
def toolkit():
    """Return the installed toolkit, with nvcc and NVRTC."""
    for program in ("g++", "gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    try:
        return compiler_names.installed()
    except StopIteration:
        pytest.skip("the packages of CUDA's compilers are not installed")


@pytest.fixture(scope="module")
def words(tmp_path_factory, toolkit):
    """Return the identifiers in the toolkit's headers and compilers."""
    return compiler_names.candidates(toolkit, tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory, toolkit, words):
    """Return what each pass of a compiler takes, nvcc first, of those words and of the listed names."""
    asked = sorted({*words, *LISTED})
    compilers = compiler_names.compilers(toolkit, tmp_path_factory.mktemp("answers"))
    return [compiler_names.ask(compiler, asked) for compiler in compilers]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory, toolkit):
    """Return what nvcc takes with CUDA's libraries, of their words and listed names, and their macros."""
    compiler, preprocess = compiler_names.library_compiler(toolkit, tmp_path_factory.mktemp("libraries"))
    own, macros = compiler_names.preprocessed(compiler, preprocess)
    return compiler_names.ask(compiler, sorted({*own, *LISTED})), macros


def compile_everywhere(folder: Path, toolkit, text: str) -> None:
    """Compile the header *text* with nvcc, and as C++ and C without a warning."""
    (folder / "udfs.h").write_text(text)
    includes = [INCLUDE_DIR, *nvrtc.toolkit_include_dirs()]
    flags = [flag for path in includes for flag in ("-isystem", str(path))]
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    for command, suffix in (
        ([str(toolkit.nvcc), "-arch=sm_90", "-rdc=true", "-c", "-o", str(folder / "out.o")], ".cu"),
        (["g++", "-std=c++17", *strict], ".cpp"),
        (["gcc", "-std=gnu11", *strict], ".c"),
        (["gcc", "-std=c11", *strict], ".c"),
    ):
        source = folder / f"source{suffix}"
        source.write_text('#include "udfs.h"\nint main(void) { return 0; }\n')
        run = subprocess.run([*command, *flags, str(source)], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, ""), command


def functions(symbols) -> list[header.Declaration]:
    """Return the declarations of functions of these names."""
    signatures = [Signature(name, FLOAT, (("value", FLOAT), ("by", FLOAT))) for name in symbols]
    return [header.Declaration(signature, signature.name, "", "udfs.py:1") for signature in signatures]


def prove_names(folder: Path, toolkit, symbols) -> None:
    """Compile a header of functions of these names everywhere, and call each."""
    declarations = functions(symbols)
    text = header.render("udfs", declarations)
    proof.prove(text, declarations, (), (pl.Arch.of("sm_90"),))
    compile_everywhere(folder, toolkit, text)


def test_plausible_names_compile_or_are_refused(tmp_path, toolkit):
    """Of 270 names that users may choose, those that are accepted compile, and else what is proposed."""
    chosen = []
    for name in PLAUSIBLE:
        try:
            chosen.append(names.check(name, "a function"))
        except pl.AbiError:
            chosen.append(names.check(names.propose(name, PLAUSIBLE), "a function"))
    assert len(set(chosen)) == len(PLAUSIBLE)
    assert len(set(chosen) & set(PLAUSIBLE)) > 150
    prove_names(tmp_path, toolkit, chosen)


@pytest.mark.slow
def test_free_names_compile(tmp_path, toolkit, words):
    """A thousand identifiers out of the toolkit's own headers that are not refused compile."""
    free = [word for word in words if names.problem(word) is None]
    assert len(free) > 10 * 1000
    prove_names(tmp_path, toolkit, random.Random(1).sample(free, 1000))  # noqa: S311 - no secret


@pytest.mark.parametrize("name", ["fdivide", "any", "all", "gamma", "select", "half", "rand", "div", "time"])
def test_names_of_cuda_and_libc_are_refused(name):
    """A function that C++ would mistake for its own is refused, and another name proposed."""
    with pytest.raises(
        pl.AbiError, match=f"'{name}', the C name of function f, is declared by.*use '{name}_'"
    ):
        names.check(name, "function f")


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("cudaMalloc", "my_cudaMalloc"),
        ("CUDA_NEW", "my_CUDA_NEW"),
        ("numba_ptxlink", "my_numba_ptxlink"),
        ("cuInit", "my_cuInit"),
        ("CUdevice", "my_CUdevice"),
        ("CUB_MINE", "my_CUB_MINE"),
        ("nvtxMine", "my_nvtxMine"),
        ("cuda", "cuda_"),
        ("cooperative_groups", "cooperative_groups_"),
        ("nvcuda", "nvcuda_"),
        ("cub", "cub_"),
        ("thrust", "thrust_"),
        ("NULL", "NULL_"),
        ("__half", "half_"),
        ("_Bool", "Bool"),
        ("9lives", "f9lives"),
        ("__", "unnamed"),
        ("_", "unnamed"),
        ("θ", "theta"),
        ("Δx", "Deltax"),
        ("ς", "sigma"),
        ("ж", "zhe"),
        ("naïveté", "naivete"),
        ("x₂", "x2"),
        ("速度", "unnamed"),
        ("WARP_SZ", "WARP_SZ_"),
        ("param12", "param12_"),
        ("retval0", "retval0_"),
        ("func_retval0", "func_retval0_"),
        ("temp_param_reg", "temp_param_reg_"),
    ],
)
def test_a_proposal_is_free(name, proposal):
    """What is proposed is not refused in turn."""
    assert names.problem(name) is not None
    assert names.propose(name) == proposal
    assert names.problem(proposal) is None


@pytest.mark.parametrize("name", ["_", "WARP_SZ", "param0", "retval0", "temp_param_reg"])
def test_names_of_ptx_cannot_be_called(name):
    """What is refused as a name of PTX cannot be called as PTX; func_retval0 would crash the process."""
    source = (
        'extern "C" __device__ __noinline__ int {0}(int x) {{ return x + (int)clock(); }}\n'
        'extern "C" __global__ void caller(int* p) {{ p[0] = {0}(p[1]); }}\n'
    )
    with pytest.raises(pl.PtxlinkError, match="ptxas application ptx input"):
        pl.link(source.format(name), arch="sm_90", lto=False)
    assert pl.link(source.format(names.propose(name)), arch="sm_90", lto=False).cubin


@pytest.mark.slow
def test_the_names_that_nvcc_takes_are_listed(words, answers):
    """Whatever nvcc's front end knows at global scope is refused, of 30000 identifiers in its headers."""
    answer = answers[0]
    assert len(answer.outside.intersection(words)) > 1000
    assert [] == [name for name in sorted(answer.outside | answer.everywhere) if names.problem(name) is None]
    assert [] == [name for name in sorted(answer.everywhere) if names.legal(name) == name]


@pytest.mark.slow
def test_the_listed_names_are_taken(tmp_path, toolkit, answers, libraries):
    """Nothing is refused without a reason: this toolkit takes almost all that any of them takes."""
    beyond = compiler_names.standard_compilers(toolkit, tmp_path)
    standard = [compiler_names.ask(compiler, sorted(LISTED)) for compiler, _ in beyond]
    answer = reduce(or_, (*answers, *standard, libraries[0]))
    rest = LISTED - answer.everywhere - answer.outside
    assert len(rest) < len(LISTED) // 20, sorted(rest)


@pytest.mark.slow
def test_the_names_that_any_installed_compiler_takes_are_listed(answers, libraries):
    """A toolkit that is newer than the list shows what is missing in it."""
    answer = reduce(or_, (*answers, *libraries))
    missing = [name for name in sorted(answer.outside) if names.problem(name) is None]
    missing += [name for name in sorted(answer.everywhere) if names.legal(name) == name]
    assert missing == [], "run tests/helpers/compiler_names.py"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", listed.TOOLKITS)
def test_the_names_that_a_toolkit_takes_are_listed(tmp_path, version):
    """Each toolkit that the list was made of still gives nothing that is not in it."""
    toolkit = compiler_names.download(version, tmp_path)
    answer = compiler_names.taken(toolkit) | compiler_names.libraries(toolkit)
    missing = [name for name in sorted(answer.outside) if names.problem(name) is None]
    missing += [name for name in sorted(answer.everywhere) if names.legal(name) == name]
    assert missing == []


def test_the_list_is_as_it_is_rendered():
    """The module is what its script writes, sorted and without repetition."""
    taken = compiler_names.Taken(frozenset(listed.EVERYWHERE.split()), frozenset(listed.OUTSIDE.split()))
    assert compiler_names.HOME.read_text() == compiler_names.render(taken, listed.TOOLKITS)


def export_and_compile(tmp_path, toolkit, marked) -> str:
    """Export functions, which proves their header with NVRTC, and compile it everywhere else."""
    exported = pl.export(marked, tmp_path / "out", archs=["sm_90"], emit=["ptx"], name="udfs")
    text = exported.header.read_text()
    compile_everywhere(tmp_path, toolkit, text)
    return text


def made(source: str, **scope):
    """Return the function f that *source* defines."""
    exec(source, scope)  # noqa: S102 - parameters of any name
    return scope["f"]


@pytest.mark.slow
def test_parameters_of_any_name_compile(tmp_path, toolkit):
    """Macros and keywords as parameters get other names, and what C++ allows stays."""
    allowed = [name for name in HOSTILE if name.isidentifier() and name != "assert"]
    function = made(f"def f({', '.join(allowed)}): return {' + '.join(allowed)}")
    text = export_and_compile(tmp_path, toolkit, [pl.udf(F32(*[F32] * len(allowed)))(function)])
    assert "float gamma, float major, float signbit" in text
    assert "float NULL_" in text


@pytest.mark.slow
def test_fields_of_any_name_compile(tmp_path, toolkit):
    """Fields of records, plain and packed, may be called anything."""
    plain = np.dtype([(name, np.float32) for name in HOSTILE], align=True)
    packed = np.dtype(
        {
            "names": HOSTILE,
            "formats": [np.int8] * len(HOSTILE),
            "offsets": [2 * n for n in range(len(HOSTILE))],
        }
    )
    marked = []
    for name, dtype in (("plain", plain), ("packed", packed)):
        record = from_dtype(dtype)
        marked.append(pl.udf(F32(record), name=name)(lambda p: p["sin"]))
    text = export_and_compile(tmp_path, toolkit, marked)
    assert "float sin;" in text
    assert "int8_t sin;" in text


@pytest.mark.slow
def test_structs_of_any_name_compile(tmp_path, toolkit):
    """A named tuple may have the name of a type of CUDA's, or of its own field or parameter."""
    taken = ("float3", "dim3", "half", "size_t", "NULL", "timeval", "cudaStream_t", "sin")
    marked = []
    for number, name in enumerate((*taken, "wire", "Point")):
        struct = types.NamedTuple([F32, types.int32], namedtuple(name, [name, "second"]))  # noqa: PYI024
        function = made(f"def f({name}, other): return {name}")
        marked.append(pl.udf(struct(struct, struct), name=f"f{number}")(function))
    text = export_and_compile(tmp_path, toolkit, marked)
    for name in taken:
        assert names.legal_type(name) != name
        assert f"typedef struct {names.legal_type(name)} {{" in text
    assert "typedef struct wire {" in text
    assert "typedef struct Point {" in text


def parameter_hides():
    """Return a function whose parameters have the names of types that later parameters have."""
    float3, wire = vector_types["float32x3"], types.NamedTuple([F32], namedtuple("wire", "x"))  # noqa: PYI024
    function = made("def f(float3, wire, int64_t, vector, sent, number): return number")
    return pl.udf(types.int64(F32, F32, F32, float3, wire, types.int64), name="parameter")(function)


def field_hides():
    """Return a function of a record whose fields have the names of its types."""
    inner = np.dtype([("float", np.float32), ("int64_t", np.int64)], align=True)
    outer = np.dtype(
        [("inner", inner), ("outer", np.int32), ("int32_t", np.int32), ("n", np.int64)], align=True
    )
    function = made("def f(p): return p.n", inner=inner, outer=outer)
    return pl.udf(types.int64(from_dtype(outer)), name="field")(function)


def members_meet():
    """Return a function of a tuple, spread, whose parameters have the names that its members would get."""
    function = made("def f(x, x_0, x_1): return x[0] + x_0 + x_1")
    return pl.udf(F32(types.UniTuple(F32, 2), F32, F32), aggregates="flat", name="flat")(function)


@pytest.fixture(scope="module")
def colliding(tmp_path_factory, toolkit):
    """Return the header of functions with names that could hide others, which compiles everywhere."""
    marked = [parameter_hides(), field_hides(), members_meet()]
    return export_and_compile(tmp_path_factory.mktemp("colliding"), toolkit, marked)


def test_a_parameter_does_not_hide_a_type(colliding):
    """A parameter may have the name of a type that a later parameter has."""
    assert "float3 vector, wire sent, int64_t number" in colliding


def test_a_field_does_not_hide_a_type(colliding):
    """A field may have the name of its type, of a type in the struct, or of the struct."""
    assert "inner inner_2;" in colliding


def test_flat_parameters_are_distinct(colliding):
    """The members of a tuple do not take the name of another parameter."""
    assert "float x_0, float x_1" in colliding


def test_a_function_with_the_name_of_a_struct_is_refused(tmp_path):
    """A function may not be called like the struct of another function."""
    wire = types.NamedTuple([F32], namedtuple("wire", "x"))  # noqa: PYI024
    marked = [pl.udf(wire(wire), name="first")(lambda x: x), pl.udf(F32(F32), name="wire")(lambda x: x)]
    with pytest.raises(pl.AbiError, match="'wire', the C name of a function, is the name of the struct"):
        pl.export(marked, tmp_path, archs=["sm_90"], emit=["ptx"])
