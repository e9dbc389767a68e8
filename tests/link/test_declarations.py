"""Declarations that CUDA C++ writes by hand, against the functions of the export that is linked."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
from pathlib import Path

import fakedevice
import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink._front_end import patch

UDFS = """
from typing import NamedTuple
from numba import types
from numba_ptxlink import udf

class V(NamedTuple):
    x: types.float32
    y: types.float32

@udf("float32(V)")
def total(v):
    return v.x + v.y

@udf("float32(float32, int32)")
def damp(x, n):
    return x * n

@udf("int64(CPointer(float32), float64, boolean)")
def pick(p, d, b):
    return int(p[0] * d) if b else 0
"""
KERNEL = '\nextern "C" __global__ void k(float* p, int n) { p[n] = damp(p[n], n); }\n'
TOTAL = '\nextern "C" __global__ void k(float* p) { p[0] = total({}); }\n'
PICK = '\nextern "C" __global__ void k(float* p, int n) { p[n] = (float)pick((float*)p, 2.0, true); }\n'


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return an export of every kind."""
    folder = tmp_path_factory.mktemp("declared")
    (folder / "udfs.py").write_text(UDFS)
    return pl.export(folder / "udfs.py", folder, arch="sm_90")


WRONG = (
    'extern "C" __device__ int damp(float, int);' + KERNEL,
    'extern "C" __device__ float damp(float, float);' + KERNEL,
    'extern "C" __device__ double damp(double, int) noexcept;' + KERNEL,
    'extern "C" __device__ float damp(float, short);' + KERNEL,
    'extern "C" __device__ float damp(float, int, int);' + KERNEL.replace(", n)", ", n, n)"),
    'extern "C" __device__ unsigned damp(const int, int n);' + KERNEL,
    'extern "C" __device__ auto damp(float, int) -> const int;' + KERNEL,
    'extern "C" __device__ float damp(wchar_t, int);' + KERNEL,
    'enum E { A }; extern "C" __device__ E damp(float, int);' + KERNEL,
    'extern "C" { namespace inner {} __device__ int damp(float, int); }'
    + KERNEL
    + "#define damp(a, b) 0 // end",
    'extern "C" __device__ double pick(float*, double, bool);' + PICK,
    'struct V { double x, y; }; extern "C" __device__ float total(V);' + TOTAL,
    'extern "C" __device__ float total(double);' + TOTAL,
    '#include "damp.h"\n',
)
RIGHT = (
    'extern "C" __device__ float damp(float, int);' + KERNEL,
    'extern "C" __device__ float damp(const float x, unsigned n);' + KERNEL,
    'extern "C" __device__ volatile float damp(float, char32_t);' + KERNEL,
    'typedef float real; extern "C" __device__ real damp(real, int) noexcept;' + KERNEL,
    (
        'enum E : int {}; extern "C" __device__ float damp(float, E);\n'
        'extern "C" __global__ void k(float* p, int n) { p[n] = damp(p[n], (E)n); }\n'
    ),
    '#include "udfs.h"' + KERNEL,
    "static __device__ int damp(float x, int n) { return n; }" + KERNEL,
    "__device__ int damp(float x, int n) { return n; }" + KERNEL,
    "namespace a { __device__ int damp(float x, int n) { return n; } } using namespace a;" + KERNEL,
    "#define damp(x, n) ((int)(x) + n)" + KERNEL,
    "template <class T> __device__ T damp(T x, int n) { return x; }" + KERNEL,
    "__device__ float damp(double, int) { return 1; }\n"
    'extern "C" __device__ float damp(float, int);' + KERNEL,
    "struct damp { int v; __device__ damp(float, int n) : v(n) {} __device__ operator int() { return v; } };"
    + KERNEL,
    'extern "C" { static __device__ int damp(float x, int n) { return n; } }' + KERNEL,
    'struct W { float members[2]; }; extern "C" __device__ float total(const W);' + TOTAL,
    'extern "C" __device__ long pick(const float*, double, bool);' + PICK,
    'extern "C" __device__ long long pick(void*, double, unsigned char);' + PICK,
    'extern "C" __device__ unsigned long long pick(unsigned long long, double, bool);'
    + PICK.replace("(float*)p", "(unsigned long long)p"),
    'extern "C" __global__ void k() { auto damp = [](float, int) { return 1; }; damp(1, 2); }\n',
)


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin", "fatbin"])
@pytest.mark.parametrize("source", WRONG)
def test_another_class_of_type_does_not_link(exported, source, kind):
    """A declaration with other types is refused, with the types of the definition."""
    artifact = exported.artifacts[kind, "" if kind == "fatbin" else "sm_90"]
    with pytest.raises(pl.LinkError) as caught:
        pl.link(source, artifact, arch="sm_90", headers={"damp.h": WRONG[0]})
    says = {
        "damp": "float damp(float x, int32_t n);",
        "total": "float total(V v);",
        "pick": "int64_t pick(float* p, double d, bool b);",
    }
    name = next(name for name in says if name in source)
    assert f"declares {name} with other types" in str(caught.value)
    assert says[name] in str(caught.value)


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
@pytest.mark.parametrize("source", RIGHT)
def test_right_programs_link(exported, source, kind):
    """Other spellings of the types, and other things of the name, are linked."""
    folder = exported.header.parent
    assert pl.link(source, exported.artifacts[kind, "sm_90"], arch="sm_90", include_dirs=[folder]).cubin


MACROS = (
    "#define K 16\n#define A 1\n#define R 1\n#define kind 1\n#define all 1\n#define types 2\n",
    "#define float double\n",
    "#define bool int\n#define true 1\n",
    "#define static_assert(...)\n",
    "#define decltype(x) int\n#define sizeof(x) 4\n",
    '#include "macros.h"\n',
    "template <int n> __global__ void spread(int* p) { *p = n; }\n#define bool int\n",
    '_Pragma("nv_diag_suppress 177")\n',
)
ENDS = ("", "#define damp other\n", "// no new line \\", "/* nor here */")
INT = 'extern "C" __device__ int damp(int, int);\n'
CALL = 'extern "C" __global__ void k(int* p) { p[0] = damp(p[0], 2); }\n'


@pytest.mark.parametrize(("macros", "end"), list(zip(MACROS, itertools.cycle(ENDS), strict=False)))
def test_macros_do_not_switch_the_comparison_off(exported, macros, end):
    """A wrong declaration is refused and a right program links, whatever macros a source defines."""
    options = {"headers": {"macros.h": "#define K 1\n#define namespace\n"}, "defines": {"NUMBER": "16"}}
    options["name_expressions"] = ["spread<NUMBER>"] if "spread" in macros else []
    artifact = exported.artifacts["ltoir", "sm_90"]
    with pytest.raises(pl.LinkError, match="declares damp with other types"):
        pl.link(macros + INT + CALL + end, artifact, arch="sm_90", **options)
    right = 'typedef decltype(1.0f) real;\nextern "C" __device__ real damp(real, int);' + KERNEL
    linked = pl.link(right + macros + end, artifact, arch="sm_90", **options)
    assert linked.cubin
    assert "compared" not in linked.log


def test_macros_are_those_of_the_source_in_names_of_templates(exported):
    """The name of a template has the meaning that the source's macros give it."""
    spread = "#define bool int\ntemplate <class T> __global__ void spread(T* p) { *p = 1; }\n"
    artifact = exported.artifacts["ptx", "sm_90"]
    linked = pl.link(spread + RIGHT[0], artifact, arch="sm_90", name_expressions=["spread<bool>"])
    assert "_Z6spreadIiEvPT_" == linked.lowered_names["spread<bool>"]


def test_a_call_in_a_template_is_compared(exported):
    """Declarations are also compared if only an instance of `name_expressions` calls the function."""
    caller = "template <int n> __global__ void k(float* p) { *p = damp(*p, n); }\n"
    for declared, fits in (("float damp(float, float)", False), ("float damp(float, int)", True)):
        source = f'extern "C" __device__ {declared};\n{caller}'
        inputs = (source, exported.artifacts["ptx", "sm_90"])
        with contextlib.nullcontext() if fits else pytest.raises(pl.LinkError, match="declares damp"):
            pl.link(*inputs, arch="sm_90", name_expressions=["k<4>"])


NAMES = (
    'extern "C" __device__ int da\\\nmp(int, int);\n' + CALL,
    f"#define JOIN(a, b) a##b\n{INT}{CALL}".replace("damp", "JOIN(da, mp)"),
    f"#define NAMES <names.h>\n#include NAMES\n{CALL}",
    f"namespace own {{ {INT} }} using own::damp;\n{CALL}",
    f"namespace own {{ {INT} }} using namespace own;\n{CALL}",
)


@pytest.mark.parametrize("source", NAMES)
def test_names_that_are_put_together_are_compared(exported, source):
    """A declaration whose name is joined of parts, or is in a file that a macro names, is compared."""
    with pytest.raises(pl.LinkError, match="declares damp with other types"):
        pl.link(source, exported.artifacts["ptx", "sm_90"], arch="sm_90", headers={"names.h": INT})


UNCOMPARED = {
    f"__device__ double damp(double x) {{ return x; }}\n{INT}{CALL}": "cannot determine which instance",
    f"namespace own {{ {INT} }}\n{CALL}".replace("= damp", "= own::damp"): "the global scope has no",
}


@pytest.mark.parametrize("source", UNCOMPARED)
@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_what_cannot_be_compared_is_said(exported, tmp_path, caplog, source, kind):
    """A declaration that NVRTC cannot compare is named with the reason: in each log, in one warning."""
    path = tmp_path / f"{tmp_path.name}.cu"
    path.write_text(source)
    expected = f"    damp  of {exported.manifest}: {UNCOMPARED[source]}"
    for _ in range(2):
        linked = pl.link(path, exported.artifacts[kind, "sm_90"], arch="sm_90")
        assert 1 == linked.log.count(expected)
    assert (1, 1) == (caplog.text.count(expected), caplog.text.count(f"{path.name} has declarations"))


def test_what_is_behind_the_last_error_is_said(exported, tmp_path, caplog):
    """NVRTC stops after 100 errors; declarations behind them are not compared, and named."""
    manifest = json.loads(exported.manifest.read_text())
    damp = next(function for function in manifest["functions"] if function["symbol"] == "damp")
    names = [f"damp{number}" for number in range(120)]
    manifest["functions"] = [{**damp, "symbol": name} for name in names]
    (tmp_path / "udfs.json").write_text(json.dumps(manifest))
    artifact = shutil.copy(exported.artifacts["ptx", "sm_90"], tmp_path)
    source = "".join(f"__device__ double {name}(double);\n{INT.replace('damp', name)}" for name in names)
    calls = "".join(f"p[0] = {name}(p[0], 2);" for name in names)
    with pytest.raises(pl.LinkError, match="damp0 is undefined"):
        pl.link(f'{source}extern "C" __global__ void k(int* p) {{ {calls} }}\n', Path(artifact), arch="sm_90")
    assert [] == [name for name in names if f"    {name}  of " not in caplog.text]


@pytest.fixture(scope="module")
def two_exports(tmp_path_factory):
    """Return a folder with the exports of two files of one name."""
    folder = tmp_path_factory.mktemp("exports")
    other = 'from numba_ptxlink import udf\n@udf("int32(int32)")\ndef other(x):\n    return x\n'
    (folder / "other.py").write_text(other)
    pl.export(folder / "other.py", folder, arch="sm_90", emit=["ptx"])
    for name in ("old", "new"):
        (folder / name).mkdir()
        (folder / name / "udfs.py").write_text(UDFS if name == "new" else UDFS.replace("total", "former"))
        pl.export(folder / name / "udfs.py", folder / name, arch="sm_90", emit=["ptx"])
    (folder / "old" / "indirect.h").write_text('#include "udfs.h"\n')
    (folder / "old" / "renamed.h").write_bytes((folder / "old" / "udfs.h").read_bytes())
    (folder / "crlf.h").write_bytes((folder / "new" / "udfs.h").read_bytes().replace(b"\n", b"\r\n"))
    return folder


OLD, NEW = '#include "old/udfs.h"\n', '#include "new/udfs.h"\n'
HEADERS = {
    OLD: False,
    NEW: True,
    OLD + NEW: True,
    NEW + OLD: True,
    f"// {OLD}{NEW}": True,
    f"/*\n{OLD}*/\n{NEW}": True,
    f'__device__ const char* text = R"(\n{OLD})";\n{NEW}': True,
    f"#if 0\n{OLD}#endif\n{NEW}": True,
    f"#ifdef MACRO\n{OLD}#else\n{NEW}#endif\n": False,
    f"#ifndef MACRO\n{OLD}#else\n{NEW}#endif\n": True,
    f'#if __has_include("nowhere.h")\n{OLD}#else\n{NEW}#endif\n': True,
    f'#if __has_include("old/udfs.h")\n{OLD}#else\n{NEW}#endif\n': False,
    '#define HEADER "old/udfs.h"\n#include HEADER\n': False,
    "#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n#define FILE old/udfs.h\n#include NAME(FILE)\n": False,
    "#include MACRO\n": False,
    '%:include "old/udfs.h"\n': False,
    '#inc\\\nlude "old/udfs.h"\n': False,
    '#include "old/indirect.h"\n': False,
    '#include "old/renamed.h"\n': False,
    '#include "crlf.h"\n': True,
    "#include <udfs.h>\n": True,
    '#define static_assert(...)\n#include "udfs.h"\n': True,
    "#define static_assert(...)\n" + OLD: False,
    # That of another export is no reason to take the wrong one.
    f'{OLD}#include "other.h"\n': False,
    f"{OLD}int not_compiled(\n": False,
}


@pytest.mark.parametrize("source", HEADERS)
def test_the_header_that_is_included_decides(two_exports, source):
    """If headers share a name, the one that the preprocessor has included counts, not the text."""
    options = {"include_dirs": [two_exports, two_exports / "new", two_exports / "old"]}
    options["defines"] = {"MACRO": '"old/udfs.h"'}
    inputs = [source + KERNEL, two_exports / "new" / "udfs.sm_90.ptx", two_exports / "other.sm_90.ptx"]
    if HEADERS[source]:
        assert pl.link(*inputs, arch="sm_90", **options).cubin
        return
    with pytest.raises(
        pl.LinkError, match=r"old/\w+\.h is the header of another export than the linked artifact"
    ):
        pl.link(*inputs, arch="sm_90", **options)


@pytest.mark.parametrize("flags", [["-I{}/old"], ["-I", "{}/old"], ["--include-path={}/old"], []])
def test_flags_include_headers_too(two_exports, flags):
    """A folder or a file among NVRTC's flags is searched as the compiler does."""
    flags = [flag.format(two_exports) for flag in flags] or [f"--pre-include={two_exports}/old/udfs.h"]
    source = ("#include <udfs.h>\n" if "pre-include" not in flags[0] else "") + KERNEL
    with pytest.raises(pl.LinkError, match=r"old/udfs\.h is the header of another export"):
        pl.link(source, two_exports / "new" / "udfs.sm_90.ptx", arch="sm_90", nvrtc_flags=flags)


DECLARED = {
    ("float32(float32, int32)", "float damp(float, int)"): True,
    ("int32(float32, int32)", "int damp(float, int)"): False,
    ("float32(float32, float32)", "float damp(float, float)"): False,
}


@pytest.fixture(params=["numba-cuda", "numba-cuda-mlir"])
def caller(request):
    """Return a function that makes a UDF which calls `damp`, from a signature in Python and a link file."""
    pytest.importorskip(request.param.replace("-", "_"))
    cuda = front_ends.cuda(request.param)

    def of(signature, abi="c", **link):
        damp = cuda.declare_device("damp", signature, abi=abi, **link)

        def calling(x):
            return damp(x, 2)

        return pl.udf("float32(float32)", front_end=request.param)(calling)

    return of


@pytest.mark.parametrize(("case", "kind"), list(zip(DECLARED, ("ltoir", "cubin", "py"), strict=True)))
def test_what_a_udf_declares_is_compared(exported, caller, case, kind):
    """A UDF that declares an exported function is held against its manifest, or another file's UDFs."""
    python = exported.header.with_name("udfs.py")
    artifact = python if kind == "py" else exported.artifacts[kind, "sm_90"]
    if DECLARED[case]:
        assert pl.link(caller(case[0]), artifact, arch="sm_90").cubin
        with pytest.raises(pl.ExportError, match=r"declares damp .*\n.*\n.* \(in Python: abi=\"c\""):
            pl.export(caller(case[0], "numba", link=str(artifact)), exported.header.parent / "caller")
        return
    with pytest.raises(pl.LinkError) as caught:
        pl.link(caller(case[0]), artifact, arch="sm_90")
    assert re.match(
        r"calling \(test_declarations\.py:\d+\) declares damp with other types", str(caught.value)
    )
    assert "float damp(float x, int32_t n);" in str(caught.value)
    assert pl.link(caller(case[0]), artifact, arch="sm_90", checks="none").cubin


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_what_a_udf_declares_is_compared_with_cuda_cxx(caller, case):
    """CUDA C++ that defines a function which a UDF declares is compiled with an assertion of its types."""
    declaration, cxx_type = case
    body = "{ return x * n; }\n"
    source = f'extern "C" __device__ float damp(float x, int n) {body}'
    if DECLARED[case]:
        assert pl.link(caller(declaration), source, arch="sm_90").cubin
        return
    with pytest.raises(
        pl.LinkError,
        match=r"calling .* declares damp with other types.*\n    \S+ damp\(.*\);  in calling \(.*\)\n"
        r'    extern "C" __device__ float damp\(float x, int n\)  in <cu 2>\n',
    ):
        pl.link(caller(declaration), source, arch="sm_90")
    right = f'extern "C" __device__ {cxx_type.replace(", ", " x, ")[:-1]} n) {body}'
    assert pl.link(caller(declaration), right, arch="sm_90").cubin
    # A function of C++ with that name has another symbol.
    other = f"__device__ double damp(double x) {{ return x; }}\n{right}"
    assert pl.link(caller(declaration), other, arch="sm_90").cubin


NUMBA = [
    ("damp", "int32(float32, int32)", False),
    ("damp", "float32(float32, float32)", False),
    # With Numba's own calling convention.
    ("damp", "float32(float32, int32)", None),
    ("pick", "int64(CPointer(float32), int64, boolean)", False),
    ("pick", "float64(CPointer(float32), float64, boolean)", False),
    # Two numbers are passed, and C takes a struct of them.
    ("total", "float32(complex64)", False),
    ("damp", "float32(float32, int32)", True),
    ("damp", "float32(float32, uint32)", True),
    ("pick", "int64(CPointer(float32), float64, boolean)", True),
    ("pick", "uint64(voidptr, float64, uint8)", True),
]


def calling(name, function):
    """Return a kernel that calls *function*, which has the type of the export's."""

    def damping(x, _pointer):
        x[0] = function(x[0], 2)

    def picking(x, pointer):
        x[0] = function(pointer, x[0], True)

    def totaling(x, value):
        x[0] = function(value)

    return {"damp": damping, "pick": picking, "total": totaling}[name]


def outcome(name, right):
    """Return the context in which a kernel with a right, or a wrong, declaration is linked."""
    wrong = pytest.raises(pl.LinkError, match=f"declares {name} with other types")
    return contextlib.nullcontext() if right else wrong


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
@pytest.mark.parametrize("case", NUMBA)
def test_numba_kernels_are_compared_by_their_llvm_ir(exported, monkeypatch, case, kind):
    """A Numba kernel that declares an exported function is held against its manifest."""
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.core import sigutils

    name, signature, right = case
    fakedevice.install(monkeypatch.setattr, (9, 0))
    link = str(exported.artifacts[kind, "sm_90"])
    function = cuda.declare_device(name, signature, abi="numba" if right is None else "c", link=link)
    args, _ = sigutils.normalize_signature(signature)
    pointer = types.int64 if name == "damp" else args[0]
    with outcome(name, right):
        assert fakedevice.compile_kernel(calling(name, function), (types.float32[::1], pointer))


KINDS = ("ptx", "cubin", "ltoir", "ptx", "ltoir")


@pytest.mark.parametrize(("case", "kind"), list(zip(NUMBA, itertools.cycle(KINDS), strict=False)))
def test_the_second_front_ends_kernels_are_compared_by_what_they_declare(exported, case, kind):
    """Declarations in a kernel of numba-cuda-mlir are compared with the manifest of the linked artifact."""
    name, signature, right = case
    cuda = front_ends.cuda("numba-cuda-mlir")
    from numba_ptxlink._numba_cuda_mlir.patches import TABLE

    link = str(exported.artifacts[kind, "sm_90"])
    by_kernel = kind == "cubin"
    function = cuda.declare_device(
        name, signature, abi="numba" if right is None else "c", link=None if by_kernel else link
    )
    pointer = re.search(r"\w+(?:\(float32\))?(?=[,)])", signature.partition("(")[2])[0]
    types = f"void(float32[::1], {'int64' if name == 'damp' else pointer})"
    options = {"link": [link]} if by_kernel else {}
    with outcome(name, right), patch.applied(TABLE):
        assert cuda.jit(types, chip="sm_90", **options)(calling(name, function)).overloads
