"""Random programs of two CUDA C++ units, a kernel and the functions it calls, whose results are exact."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cxx_pointers import MIX, Pointers

SCALARS = {
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short": 2,
    "unsigned short": 2,
    "int": 4,
    "unsigned": 4,
    "long long": 8,
    "unsigned long long": 8,
    "float": 4,
    "double": 8,
}
THREADS = 64


@dataclass(frozen=True)
class Struct:
    """A struct: its name, and type, name and count of each member."""

    name: str
    members: tuple[tuple[str, str, int], ...]

    def definition(self) -> str:
        """Return it in C++."""
        lines = (f"  {kind} {name}{f'[{count}]' if count > 1 else ''};" for kind, name, count in self.members)
        return "\n".join((f"struct {self.name} {{", *lines, "};"))


class Program:
    """
    Two units made from a seed.

    Attributes:
        caller: The unit with the kernel `k(unsigned long long* out, int n)`.
        callee: The unit with the functions that it calls.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secrets
        self._pointers = Pointers(seed)
        self._known: dict[str, Struct] = {}
        for number in range(self._random.randint(1, 4)):
            self._known[f"S{number}"] = self._struct(f"S{number}")
        functions = [self._signature(number) for number in range(self._random.randint(1, 5))]
        types = "\n".join((*(struct.definition() for struct in self._known.values()), self._pointers.types))
        helpers = "\n".join(self._hash(struct) for struct in self._known.values())
        declarations = "\n".join(
            f'extern "C" __device__ {self._declared(function)};' for function in functions
        )
        table = "__device__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};"
        # A private name that both units have.
        shared = f"namespace {{ {table}\n{MIX}\n{helpers} }}"
        bodies = "\n".join(self._definition(number, functions) for number in range(len(functions)))
        kernel = f"{self._pointers.variables}\n{self._kernel(functions)}"
        self.callee = f"{types}\n{declarations}\n{shared}\n{bodies}\n{self._pointers.definitions}\n"
        self.caller = f"{types}\n{declarations}\n{shared}\n{kernel}\n"

    def _struct(self, name: str) -> Struct:
        members = []
        for number in range(self._random.randint(1, 5)):
            kinds = [*SCALARS, *self._known]
            count = self._random.choice((1, 1, 1, 2, 3, 5, 17))
            members.append((self._random.choice(kinds), f"m{number}", count))
        return Struct(name, tuple(members))

    def _type(self) -> str:
        return self._random.choice((*SCALARS, *self._known, *self._known))

    def _signature(self, number: int) -> tuple[str, str, tuple[str, ...]]:
        result = self._random.choice(("void", self._type(), self._type(), self._type()))
        return f"f{number}", result, tuple(self._type() for _ in range(self._random.randint(0, 4)))

    def _declared(self, function: tuple[str, str, tuple[str, ...]]) -> str:
        name, result, params = function
        extra = ["unsigned long long* state"] if result == "void" else []
        listed = [f"{kind} p{number}" for number, kind in enumerate(params)]
        return f"{result} {name}({', '.join((*listed, *extra))})"

    def _hash(self, struct: Struct) -> str:
        """Return a function that reduces a struct to a number, and one that fills it from a number."""
        reads, writes = [], []
        for kind, name, count in struct.members:
            index = f"{name}[i]" if count > 1 else name
            loop = f"for (int i = 0; i < {count}; ++i) " if count > 1 else ""
            reads.append(f"{loop}h = mix(h, {self._number(kind, f's.{index}')});")
            writes.append(f"{loop}{{ h = mix(h, 7); s.{index} = {self._value(kind, 'h')}; }}")
        return (
            f"__device__ unsigned long long hash({struct.name} s) {{ unsigned long long h = 1; "
            f"{' '.join(reads)} return h; }}\n"
            f"__device__ {struct.name} make_{struct.name}(unsigned long long h) {{ {struct.name} s; "
            f"{' '.join(writes)} return s; }}"
        )

    def _number(self, kind: str, of: str) -> str:
        return f"hash({of})" if kind in self._known else f"(unsigned long long)(long long)({of})"

    def _value(self, kind: str, of: str) -> str:
        if kind in self._known:
            return f"make_{kind}({of})"
        # Small whole numbers are exact in every type, whatever is contracted.
        return f"(({of} >> 9) & 1) != 0" if kind == "bool" else f"({kind})(({of} >> 9) & 127)"

    def _definition(self, number: int, functions: list[tuple[str, str, tuple[str, ...]]]) -> str:
        choice = self._random
        _, result, params = functions[number]
        lines = [f"unsigned long long h = {number + 11};"]
        for place, kind in enumerate(params):
            lines.append(f"h = mix(h, {self._number(kind, f'p{place}')});")
            members = self._known[kind].members if kind in self._known else ()
            for inner, member, count in members:
                # A dynamic index takes the address of the parameter.
                if count > 1 and inner in SCALARS and choice.random() < 0.5:
                    lines.append(f"h = mix(h, {self._number(inner, f'p{place}.{member}[h % {count}]')});")
        if choice.random() < 0.4:
            lines.append("for (int i = 0; i < (int)(h % 5); ++i) h = mix(h, table[(h + i) % 16]);")
        if choice.random() < 0.3:
            lines.append("table[threadIdx.x % 1] += 0; h = mix(h, table[h % 16]);")
        if choice.random() < 0.3:
            early = "*state = h; return;" if result == "void" else f"return {self._value(result, 'h')};"
            lines.append(f"if (h % 3 == 0) {{ {early} }}")
        for callee, other, wanted in functions[:number]:
            if choice.random() < 0.4:
                lines.append(self._called(callee, other, wanted))
        if choice.random() < 0.2:
            lines.append(
                f'asm volatile("{{ .reg .pred p; setp.eq.u64 p, %1, 0; @p bra L{number}; '
                f'add.u64 %0, %0, 5; L{number}: }}" : "+l"(h) : "l"(h % 2));'
            )
        lines.append("*state = h;" if result == "void" else f"return {self._value(result, 'h')};")
        attribute = choice.choice(("", "", "__noinline__ "))
        body = "\n  ".join(lines)
        return f'extern "C" __device__ {attribute}{self._declared(functions[number])} {{\n  {body}\n}}'

    def _called(self, name: str, result: str, params: tuple[str, ...]) -> str:
        arguments = [self._value(kind, f"(h + {place})") for place, kind in enumerate(params)]
        if result == "void":
            return f"{{ unsigned long long s = h; {name}({', '.join((*arguments, '&s'))}); h = mix(h, s); }}"
        return f"h = mix(h, {self._number(result, f'{name}({chr(44).join(arguments)})')});"

    def _kernel(self, functions: list[tuple[str, str, tuple[str, ...]]]) -> str:
        lines = []
        for name, result, params in self._random.choices(functions, k=self._random.randint(1, 6)):
            call = self._called(name, result, params)
            shape = self._random.random()
            if shape < 0.2:
                call = f"for (int j = 0; j < n; ++j) {{ {call} }}"
            elif shape < 0.4:
                call = f"if (h % 2) {{ {call} }}"
            lines.append(call)
        for call in self._pointers.calls:
            lines.insert(self._random.randint(0, len(lines)), call)
        body = "\n  ".join((self._pointers.start, *lines))
        return (
            'extern "C" __global__ void k(unsigned long long* out, int n)\n{\n'
            f"  unsigned long long h = threadIdx.x * 2654435761u + 1;\n  {body}\n  out[threadIdx.x] = h;\n}}"
        )
