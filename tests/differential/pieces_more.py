"""More pieces: print and raise, tuples, unusual names, foreign code, extensions and number types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pieces import DEVICE, Piece, real, whole

if TYPE_CHECKING:
    import random

STRINGS = (
    "_cudapy_smem_3",
    "_ZN1m1kB2v1B5flagsEf",
    ".bytes.12",
    "fB2v1",
    'B2v1E \\"quoted\\"',
    "discriminator--12",
    "100%% plain",
)


def prints(rng: random.Random, n: str) -> Piece:
    """Return prints of numbers and of strings, some of which look like the compiler's names."""
    text = rng.choice(STRINGS)
    other = rng.choice(STRINGS)
    return Piece(
        f"""
@cuda.jit(device=True)
def tell{n}(v):
    print("{other}", v)
    return v & 3
""",
        f'if i == {rng.randrange(4)}:\n    print("{text}", x, y)\n    acc += tell{n}(x)',
    )


def raises(rng: random.Random, n: str) -> Piece:
    """Return a helper that raises for some values; only debug code reports the exception to the host."""
    error = rng.choice(
        ('ValueError("too much")', 'IndexError("_cudapy_smem_3")', "KeyError", "ZeroDivisionError")
    )
    bound = rng.choice((10, 10**9))
    return Piece(
        f"""
@cuda.jit(device=True{rng.choice(("", ", debug=True, opt=False"))})
def check{n}(v):
    if v > {bound}:
        raise {error}
    return v
""",
        f"acc += check{n}(x)",
        last=True,
    )


def asserts(rng: random.Random, n: str) -> Piece:
    """Return assertions in the kernel."""
    message = rng.choice(("", ', "x is fB2v1"'))
    return Piece("", f"assert x < {rng.choice((11, 10**9))}{message}\nacc += {len(n)}", last=True)


def nested_inline(rng: random.Random, n: str) -> Piece:
    """Return functions that Numba inlines into each other, with a loop or a branch in the innermost."""
    inner = rng.choice(
        (
            f"    return {whole(rng)}",
            "    r = 0\n    for j in range(4):\n        r += v + j\n    return r",
            f"    if v > 7:\n        return v - {rng.randrange(9)}\n    return v * 2",
        )
    )
    lines = ['@cuda.jit(device=True, inline="always")', f"def in{n}_0(v):", inner, ""]
    depth = rng.randrange(1, 4)
    for i in range(1, depth + 1):
        lines += ['@cuda.jit(device=True, inline="always")', f"def in{n}_{i}(v):"]
        form = rng.choice(
            (
                "    return {f}(v) + {f}(v + 1)",
                "    w = {f}(v)\n    return w ^ v",
                "    r = 0\n    for j in range(3):\n        r += {f}(v + j)\n    return r",
            )
        )
        lines += [form.format(f=f"in{n}_{i - 1}"), ""]
    return Piece("\n".join(lines), f"acc += in{n}_{depth}(x)")


def recursion(rng: random.Random, n: str) -> Piece:
    """Return a function that calls itself."""
    wrap = rng.choice(("@cuda.jit(device=True)", '@cuda.jit("i8(i8)", device=True)'))
    return Piece(
        f"""
{wrap}
def again{n}(v):
    if v < {rng.randrange(2, 5)}:
        return v
    return again{n}(v - 1) + again{n}(v - 2)
""",
        f"acc += again{n}(x & 7)",
    )


def tuples(rng: random.Random, n: str) -> Piece:
    """Return tuples and named tuples, two named tuples of one shape."""
    return Piece(
        f"""
Pair{n} = namedtuple("Pair{n}", "low high")
Span{n} = namedtuple("{rng.choice(("Span", "Pair"))}{n}", "low high")


{rng.choice(DEVICE[:4])}
def width{n}(p):
    return p.high - p.low


@cuda.jit(device=True)
def both{n}(v):
    return v + 1, {real(rng)}
""",
        f"""
acc += width{n}(Pair{n}(x, x + 4)) + width{n}(Span{n}(1, x))
first{n}, second{n} = both{n}(x)
acc += first{n}
val += second{n}
""",
    )


def linked_source(rng: random.Random, n: str) -> Piece:
    """Return functions in CUDA C++ that are linked, some with shared or constant memory of their own."""
    name = f"outer{n}"
    memory = rng.choice(
        (
            "",
            "__shared__ int s[16]; s[threadIdx.x & 15] = x; ",
            f"static __constant__ int c{n}[2] = {{3, 4}};",
        )
    )
    inside, outside = (memory, "") if memory.startswith("__shared__") else ("", memory)
    use = f"c{n}[x & 1]" if outside else "5"
    source = (
        f'{outside} extern "C" __device__ int {name}(int* r, int x) '
        f"{{ {inside} *r = x * {rng.randrange(2, 9)} + {use}; return 0; }}"
    )
    return Piece(
        f'{name} = cuda.declare_device({name!r}, "int32(int32)", link=cuda.CUSource({source!r}))',
        f"acc += {name}(x)",
    )


def linked_ptx(rng: random.Random, n: str) -> Piece:
    """Return a function in PTX that is linked."""
    name = f"ptx{n}"
    return Piece(
        f'''
{name} = cuda.declare_device("{name}", "int32(int32)", link=cuda.PTXSource(b"""
.version 8.0
.target sm_75
.address_size 64
.visible .func (.param .b32 status) {name}(.param .b64 result, .param .b32 x)
{{{{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [result];
    ld.param.u32 %r1, [x];
    add.s32 %r2, %r1, {rng.randrange(100)};
    st.u32 [%rd1], %r2;
    mov.u32 %r1, 0;
    st.param.b32 [status], %r1;
    ret;
}}}}
"""))
'''.replace("{{", "{").replace("}}", "}"),
        f"acc += {name}(x)",
    )


def halves(rng: random.Random, n: str) -> Piece:
    """Return arithmetic of halves."""
    return Piece(
        f"""
@cuda.jit(device=True)
def half{n}(a, b):
    return a {rng.choice("+-*")} b
""",
        f"h{n}[i] = half{n}(h{n}[i], np.float16(2))\nval += np.float32(h{n}[i])",
        params={f"h{n}": "filled(np.float16)"},
    )


def overloads(rng: random.Random, n: str) -> Piece:
    """Return a function that the program implements for Numba, by type."""
    return Piece(
        f"""
def twice{n}(v):
    return v * 2


@overload(twice{n}, target="cuda"{rng.choice(("", ', inline="always"'))})
def twice{n}_impl(v):
    if isinstance(v, types.Float):
        return lambda v: v * 2.0 + 1.0
    return lambda v: v * 2
""",
        f"acc += twice{n}(x)\nval += twice{n}(y)",
    )


def typed_calls(rng: random.Random, n: str) -> Piece:
    """Return a function with typer and lowering of the program's own."""
    return Piece(
        f"""
def shift{n}(v):
    return v


@type_callable(shift{n})
def type_shift{n}(context):
    def typer(v):
        return v
    return typer


@lower_builtin(shift{n}, types.Integer)
def lower_shift{n}(context, builder, signature, args):
    return builder.add(args[0], args[0].type({rng.randrange(50)}))
""",
        f"acc += shift{n}(x)",
    )


def refused(rng: random.Random, n: str) -> Piece:
    """Return code that does not compile."""
    form = rng.choice(
        (
            "acc += missing_name{n}",
            "acc += x.attribute",
            "acc += [1, 'a'][x]",
            "acc += len(x)",
            "val += math.nothing(y)",
        )
    )
    return Piece("", form.format(n=n))
