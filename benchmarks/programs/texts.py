"""Generate inputs of links and compilers: PTX from templates, and PTX and LTO-IR by NVRTC from CUDA C++."""

from __future__ import annotations

SOURCE = """\
template <class T> __device__ __noinline__ T recurse(T x, int n) { return n ? recurse(x * x, n - 1) + x : x; }
__constant__ int table[256] = {1, 2, 3, 4};
extern "C" __global__ void kernel(float* p, double* q, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    switch (n) {
        case 0: p[i] = sinf(p[i]); break;
        case 1: p[i] = recurse(p[i], 3); break;
        case 2: q[i] = sin(q[i]) / pow(q[i], 3.3); break;
        default: atomicAdd(p, table[i & 255]);
    }
}
"""
FUNCTION = """\
extern "C" __device__ float f{number}(float a, int n, const float* table) {{
  float r = a;
  for (int i = 0; i < n; ++i) {{
    r = r * a + table[i + {number}];
    if (r > 100.f) r = sqrtf(r) - expf(-a * {number});
  }}
  return r;
}}
"""
KERNEL = 'extern "C" __global__ void k(float* x, const float* y, int n) {{ {body} }}'
CALL = "x[{number}] = f{number}(x[{number} + 1], n, y);\n"
STATEMENT = "x[{number} + 9] = expf(x[{number}]) * y[{number} + n] + x[{number} + 1] / y[{number}];\n"
# For each pair of a kernel and functions: the functions that the kernel calls, the number of functions, and
# the number of other statements in the kernel.
PAIRS = {
    "1 function": (range(1), 1, 0),
    "a kernel of 30 kB, 1 function": (range(1), 1, 60),
    "10 functions": (range(10), 10, 0),
    "30 functions": (range(30), 30, 0),
    "1 of 100 functions": (range(50, 51), 100, 0),
}


def generate_ptx(size: int) -> str:
    """Return one kernel of about *size* characters: loads, fused multiply-adds, stores."""
    head = (
        ".version 8.0\n.target sm_75\n.address_size 64\n\n.visible .entry kernel(.param .u64 out)\n{\n"
        ".reg .b64 %rd<2>;\n.reg .f32 %f<17>;\nld.param.u64 %rd1, [out];\n"
    )
    # The number of values, each in a register.
    count = 4 if size < 1000 else 16
    loads = "".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(count))
    stores = "".join(f"st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(count))
    body: list[str] = []
    length = len(head) + len(loads) + len(stores) + 8
    while length < size:
        i = len(body)
        body.append(f"fma.rn.f32 %f{i % count}, %f{(i + 3) % count}, %f{(i + 5) % count}, %f{i % count};\n")
        length += len(body[-1])
    return f"{head}{loads}{''.join(body)}{stores}ret;\n}}\n"


def declare(count: int) -> str:
    """Return a module with little code, and *count* declared functions and tables."""
    functions = "".join(
        f".extern .func (.param .b32 r) f{i}\n(\n\t.param .b64 f{i}_p0,\n\t.param .b32 f{i}_p1\n)\n;\n"
        for i in range(count)
    )
    values = ", ".join(str(i % 256) for i in range(400))
    tables = "".join(f".global .align 8 .b8 t{i}[400] = {{{values}}};\n" for i in range(count))
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    return f"{head}{functions}{tables}.visible .entry kernel()\n{{\nret;\n}}\n"


def compile_cxx(source: str, arch: str, *flags: str, lto: bool = False) -> bytes:
    """Return the relocatable PTX that NVRTC makes of CUDA C++; the LTO-IR if *lto* is set."""
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={arch.replace('sm', 'compute')}", "-rdc=true", *flags, *["-dlto"] * lto]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"source.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(status):
        raise SystemExit(f"NVRTC failed: {status.name}")
    get_size = nvrtc.nvrtcGetLTOIRSize if lto else nvrtc.nvrtcGetPTXSize
    get_code = nvrtc.nvrtcGetLTOIR if lto else nvrtc.nvrtcGetPTX
    _, size = get_size(program)
    code = b"\0" * size
    get_code(program, code)
    return code if lto else code.rstrip(b"\0")


def make_pair(name: str, arch: str, variant: int = 0, *, lto: bool = False) -> tuple[bytes, bytes]:
    """
    Return the code of the pair *name* of `PAIRS`: a kernel, and functions that it may call.

    Each *variant* of a pair has other names and constants, so that no tool knows parts of it already.
    """
    first_number = 1000 * variant
    called_indices, count, statement_count = PAIRS[name]
    called = [first_number + index for index in called_indices]
    declared = "".join(
        f'extern "C" __device__ float f{number}(float, int, const float*);\n' for number in called
    )
    body = "".join(STATEMENT.format(number=first_number + index) for index in range(statement_count))
    body += "".join(CALL.format(number=number) for number in called)
    callees = "".join(FUNCTION.format(number=first_number + index) for index in range(count))
    kernel = declared + KERNEL.format(body=body)
    return compile_cxx(kernel, arch, lto=lto), compile_cxx(callees, arch, lto=lto)
