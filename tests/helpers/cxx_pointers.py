"""Generate functions that take pointers, and calls with pointers to memory of every kind."""

from __future__ import annotations

THREADS, WORDS = 64, 16
STRUCT = "struct Words { unsigned long long* a; unsigned long long* b; long long mask; };"
# Arguments of calls: an expression, the number of words less one, and whether all words are writable. The
# pointers are a kernel parameter, variables in each state space, and one that is loaded from an array at run
# time.
PLACES = {
    "parameter": ("(out + threadIdx.x)", 0, True),
    "global": ("(scratch + threadIdx.x * 16)", WORDS - 1, True),
    "shared": ("(tile + threadIdx.x * 16)", WORDS - 1, True),
    "local": ("words", WORDS - 1, True),
    "loaded": ("pointers[(h >> 7) % 3]", WORDS - 1, True),
    "constant": ("limits", WORDS - 1, False),
}
WITHOUT_ATOMICS = ("local", "loaded", "constant")
MIX = (
    "__device__ unsigned long long mix(unsigned long long h, unsigned long long v) "
    "{ h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2); return h * 0xff51afd7ed558ccdull; }"
)
FUNCTIONS = {
    "read": "return mix(h, p[h & mask] + p[(h >> 8) & mask]);",
    "copy": "q[(h >> 4) & mask] = p[h & mask] + h; return mix(h, p[(h >> 9) & mask]);",
    "loop": "for (long long i = 0; i <= mask; ++i) { q[i] += p[mask - i] ^ h; h = mix(h, q[i]); } return h;",
    "choose": "unsigned long long* r = h & 1 ? q : (unsigned long long*)p; return mix(h, r[h & mask]);",
    "swap": """for (int i = 0; i < 3; ++i) {
    h = mix(h, p[h & mask]);
    const unsigned long long* t = p; p = q; q = (unsigned long long*)t;
  }
  return h;""",
    "bytes": """const char* base = (const char*)p;
  unsigned long long at = (h & mask) * 8 + (h & 7);
  return mix(h, ((const unsigned char*)base)[at] + *(volatile const unsigned*)(base + (h & mask) * 8));""",
    "halves": """unsigned long long address = (unsigned long long)p;
  unsigned low = (unsigned)address, high = (unsigned)(address >> 32);
  const unsigned long long* r = (const unsigned long long*)(((unsigned long long)high << 32) | low);
  return mix(h, r[h & mask]);""",
    # The difference of integers: a pointer plus an offset stays in its object, and so in its state space.
    "difference": """unsigned long long one = (unsigned long long)p, apart = (unsigned long long)q - one;
  return mix(h, *(const unsigned long long*)(one + apart + (h & mask) * 8));""",
    "vector": """if (mask == 0) return h;
  ulonglong2 pair = *(const ulonglong2*)(p + (h & 14));
  *(ulonglong2*)(q + ((h >> 5) & 14)) = make_ulonglong2(pair.y + 1, pair.x ^ h);
  return mix(h, pair.x + q[h & mask]);""",
    "atomic": """unsigned long long old = atomicAdd(q + (h & mask), h);
  atomicXor((unsigned*)(q + (h & mask)), (unsigned)h);
  return mix(h, old + atomicCAS(q, old, h));""",
}
STRUCTS = {
    "by_value": ("Words w", "w.b[h & w.mask] += w.a[(h >> 6) & w.mask]; return mix(h, w.b[h & w.mask]);"),
    "by_address": ("Words* w", "w->b = w->a; w->b[h & w->mask] ^= h; return mix(h, w->a[h & w->mask]);"),
}

VARIABLES = f"""namespace {{
__device__ __align__(16) unsigned long long scratch[{THREADS * WORDS}];
__constant__ __align__(16) unsigned long long limits[{WORDS}] = {{2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9}};
}}"""
START = f"""__shared__ __align__(16) unsigned long long tile[{THREADS * WORDS}];
  alignas(16) unsigned long long words[{WORDS}];
  unsigned long long* pointers[3] = {{words, tile + threadIdx.x * {WORDS}, scratch + threadIdx.x * {WORDS}}};
  for (int i = 0; i < {WORDS}; ++i) {{
    words[i] = h + i; pointers[1][i] = h * 3 + i; pointers[2][i] = h * 5 + i;
  }}
  out[threadIdx.x] = h;"""


def units(one: str, two: str) -> tuple[str, str]:
    """Return a kernel that passes the memory *one* and *two* to every function, and the functions."""
    declared = {name: _declared(name) for name in (*FUNCTIONS, *STRUCTS, "give")}
    declarations = "\n".join(f'extern "C" __device__ {text};' for text in declared.values())
    head = f"namespace {{ {MIX} }}\n{STRUCT}\n{declarations}\n"
    definitions = "\n".join(
        f'extern "C" __device__ {text} {{\n  {_body(name)}\n}}' for name, text in declared.items()
    )
    calls = "\n  ".join(_call(name, one, two) for name in declared)
    kernel = (
        f'{VARIABLES}\nextern "C" __global__ void k(unsigned long long* out, int n)\n{{\n'
        f"  unsigned long long h = threadIdx.x * 2654435761u + 1;\n  {START}\n  {calls}\n"
        "  out[threadIdx.x] = h;\n}\n"
    )
    return f"{head}{kernel}", f"{head}{definitions}\n"


def _call(name: str, *kinds: str) -> str:
    """Return a statement that changes `h` by a call with two places in memory, one of them writable."""
    # Atomic operations need an array in global or shared memory.
    one, two = (PLACES["global" if name == "atomic" and kind in WITHOUT_ATOMICS else kind] for kind in kinds)
    two = two if two[2] else PLACES["global"]
    mask = min(one[1], two[1])
    writable = one[0] if one[2] else two[0]
    if name == "give":
        statement = f"unsigned long long* r = w_give({writable}, {two[0]}, h);"
        return f"{{ {statement} r[h & {mask}] += h; h = mix(h, *r); }}"
    if name in STRUCTS:
        first = writable if name == "by_address" else f"(unsigned long long*){one[0]}"
        address = "&" if name == "by_address" else ""
        return f"{{ Words w{{{first}, {two[0]}, {mask}}}; h = w_{name}({address}w, h); }}"
    return f"h = w_{name}({one[0]}, {two[0]}, {mask}, h);"


def _declared(name: str) -> str:
    word = "unsigned long long"
    if name == "give":
        return f"{word}* w_give({word}* p, {word}* q, {word} h)"
    if name in STRUCTS:
        return f"{word} w_{name}({STRUCTS[name][0]}, {word} h)"
    return f"{word} w_{name}(const {word}* p, {word}* q, long long mask, {word} h)"


def _body(name: str) -> str:
    return "return h & 2 ? q : p;" if name == "give" else FUNCTIONS.get(name) or STRUCTS[name][1]
