"""
Random PTX of several modules: functions that pass everything that a call can pass, in every way.

Parameters are structs that are stored and loaded in any mix of widths, with bytes that nothing stores;
numbers; and pointers to 32 bytes of a lane, of any memory. What a program computes goes to `trace`.
`python random_ptx.py SEED` prints the modules of a program.
"""

from __future__ import annotations

import random
import re
import sys
from dataclasses import dataclass

from instructions import HEAD

LANES = 40
ROOM = 32
"""Bytes behind a pointer."""
SLOTS = 192
"""Words of 8 bytes of the trace for each lane."""
# A pointer x as d, by its parts, or one of x and y.
_PARTS = """\
mov.b64 {a, b}, x; mov.b64 d, {a, b}

shr.u64 e, x, 32; cvt.u32.u64 a, x; cvt.u64.u32 d, a; shl.b64 e, e, 32; or.b64 d, d, e

shr.u64 g, x, 32; cvt.u32.u64 b, g; cvt.u32.u64 a, x; cvt.u64.u32 h, a; cvt.u64.u32 e, b;
shl.b64 f, e, 32; or.b64 d, h, f

shr.u64 g, x, 32; cvt.u32.u64 b, g; cvt.u32.u64 a, x; cvt.u64.u32 h, a; cvt.u64.u32 e, b;
mov.u64 f, 4294967296; mul.lo.u64 i, e, f; add.u64 d, h, i

mov.u64 f, 4294967296; shr.u64 e, x, 32; mul.lo.u64 e, e, f; and.b64 d, x, 4294967295; add.u64 d, d, e

mov.b64 {a, b}, x; mov.u32 c, 65536; mul.wide.u32 e, b, c; shl.b64 e, e, 16; mad.wide.u32 d, a, 1, e

mov.b64 {a, b}, x; mov.u32 c, -2147483648; mul.wide.u32 e, b, c; mad.wide.u32 e, b, c, e;
cvt.u64.u32 d, a; add.s64 d, d, e

sub.s64 e, x, y; add.s64 d, y, e

xor.b64 e, x, y; xor.b64 d, y, e

selp.b64 d, x, y, q

mov.u64 d, x; @p mov.u64 d, y

add.s64 e, x, -16; add.s64 d, e, 16

and.b64 e, x, -65536; bfi.b64 d, x, e, 0, 16

and.b64 e, x, -16; and.b64 f, x, 15; or.b64 d, e, f
""".strip().split("\n\n")
_LETTER = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}


@dataclass(frozen=True)
class Param:
    """A parameter or a result: a "number", a "struct", a "pointer", or a "seed", which is all defined."""

    kind: str
    size: int
    alignment: int

    def declared(self, name: str) -> str:
        """Return its declaration."""
        if self.kind == "struct":
            return f".param .align {self.alignment} .b8 {name}[{self.size}]"
        return f".param .b{self.size * 8} {name}"


@dataclass
class Function:
    """A function; that some of its lanes wait for all others is its callers' concern."""

    name: str
    module: int
    linkage: str
    results: list[Param]
    params: list[Param]
    collective: bool = False
    early: bool = False
    text: str = ""

    def heading(self, linkage: str) -> str:
        """Return its prototype."""
        results, params = (
            ", ".join(param.declared(f"{letter}{number}") for number, param in enumerate(params))
            for letter, params in (("q", self.results), ("p", self.params))
        )
        return f"{linkage} .func {f'({results}) ' if results else ''}{self.name}({params})"


class Program:
    """
    Modules made from a seed.

    Attributes:
        texts: The modules; the first has the kernel `k(.param .u64 scratch, .param .u32 n)`.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - no secrets
        modules = self.rng.choice((2, 2, 2, 3))
        self.slots = 0
        self.functions: list[Function] = []
        for number in range(self.rng.randint(1, 4)):
            function = self._signature(number, modules)
            function.text = Body(self, function).text()
            self.functions.append(function)
        kernel = Function("k", 0, "", [], [])
        kernel.text = Body(self, kernel, calls=self.rng.randint(2, 4)).text()
        self.texts = [self._module(number, kernel) for number in range(modules)]

    def _signature(self, number: int, modules: int) -> Function:
        choose = self.rng
        params = [self.param() for _ in range(choose.randint(0, 3))]
        params.insert(choose.randint(0, len(params)), Param("seed", 4, 4))
        results = [self.param()] if choose.random() < 0.8 else []
        module = choose.randrange(modules)
        # A function of the first module may be private to it.
        private = not module and choose.random() < 0.3
        return Function(
            f"f{number}",
            module,
            "" if private else choose.choice((".visible", ".visible", ".weak")),
            results,
            params,
        )

    def param(self) -> Param:
        """Return a random parameter."""
        choose = self.rng
        kind = choose.choice(("number", "struct", "struct", "struct", "pointer"))
        if kind == "struct":
            alignment = choose.choice((1, 2, 4, 4, 8, 8, 16))
            most = choose.choice((4, 8, 24))
            return Param(kind, alignment * choose.randint(1, max(1, most // alignment)), alignment)
        size = 8 if kind == "pointer" else choose.choice((1, 2, 4, 8))
        return Param(kind, size, size)

    def slot(self) -> int:
        """Return where in the trace there is room."""
        self.slots = (self.slots + 1) % SLOTS
        return self.slots

    def _module(self, number: int, kernel: Function) -> str:
        local = [function for function in self.functions if function.module == number]
        external = [function for function in self.functions if function.module != number and function.linkage]
        trace = f".align 16 .b8 trace[{SLOTS * 8 * LANES}];"
        parts = [
            f".extern .global {trace}" if number else f".visible .global {trace}",
            f".shared .align 16 .b8 tile[{ROOM * LANES}];",
            *(f"{function.heading('.extern')};" for function in external),
            *(function.text for function in local),
            *([] if number else [kernel.text]),
        ]
        return "\n".join((HEAD, *parts, ""))


class Body:
    """
    The code of a function during its generation.

    Attributes:
        data: Registers by their width, whose bits may be undefined.
        clean: Registers of 32 bits that are defined.
        pointers: Registers with addresses; `lasting` are those that a function may return.
    """

    def __init__(self, program: Program, function: Function, calls: int = 0) -> None:
        self.program, self.function, self.choose = program, function, program.rng
        self.lines: list[str] = []
        self.counts = dict.fromkeys(_LETTER, 0)
        self.data: dict[int, list[str]] = {16: [], 32: [], 64: []}
        self.clean: list[str] = []
        self.lasting: list[str] = []
        self.depth = self.marks = 0
        self.kernel = function.name == "k"
        self._start()
        for _ in range(self.choose.randint(3, 6)):
            self._statement()
        for _ in range(calls):
            self._call()
        for result in function.results:
            self._give("q0", result)
        for bits in (32, 64):
            self._trace(self.some(bits))

    def text(self) -> str:
        """Return the function."""
        head = ".visible .entry k(.param .u64 scratch, .param .u32 n)"
        head = head if self.kernel else self.function.heading(self.function.linkage)
        registers = [
            f".reg .{'pred' if bits == 1 else f'b{bits}'} {letter}<{self.counts[bits] + 1}>;"
            for bits, letter in _LETTER.items()
        ]
        body = "\n  ".join((*registers, self.depot, *self.lines, "ret;"))
        return f"{head}\n{{\n  {body}\n}}"

    # Registers

    def new(self, bits: int) -> str:
        """Return a new register."""
        self.counts[bits] += 1
        return f"{_LETTER[bits]}{self.counts[bits]}"

    def add(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def result(self, bits: int, line: str) -> str:
        """Add an instruction that computes data out of data, `{}` for the register."""
        register = self.new(bits)
        self.add(line.format(register))
        return register

    def some(self, bits: int) -> str:
        """Return a register with data, at times one that nothing has written."""
        if not self.data[bits] or self.choose.random() < 0.04:
            return self.new(bits)
        return self.choose.choice(self.data[bits])

    def keep(self, bits: int, line: str) -> None:
        """Add an instruction whose result is data."""
        self.data[bits].append(self.result(bits, line))

    def seed(self) -> str:
        """Return a register of 32 bits that are defined."""
        return self.choose.choice(self.clean)

    def predicate(self) -> str:
        """Return a predicate of defined bits."""
        register, mask = self.new(1), self.choose.choice((1, 2, 3, 5))
        chosen = self.result(32, f"and.b32 {{}}, {self.seed()}, {mask};")
        self.add(f"setp.{self.choose.choice(('eq', 'ne'))}.u32 {register}, {chosen}, 0;")
        return self.choose.choice(("", "!")) + register

    def guard(self, rate: float) -> str:
        """Return a predicate for an instruction, mostly none."""
        return f"@{self.predicate()} " if self.choose.random() < rate else ""

    # The beginning of a function

    def _start(self) -> None:
        has_depot = self.kernel or self.choose.random() < 0.4
        self.depot = f".local .align 16 .b8 depot[{2 * ROOM}];" if has_depot else ""
        lane = self.result(32, "mov.u32 {}, %tid.x;")
        self.log = self.result(64, "mov.u64 {}, trace;")
        self.add(f"mad.wide.u32 {self.log}, {lane}, 8, {self.log};")
        if self.kernel:
            self.clean += [lane, self.result(32, "ld.param.u32 {}, [n];")]
            scratch = self.result(64, "ld.param.u64 {}, [scratch];")
            self.add(f"mad.wide.u32 {scratch}, {lane}, {ROOM}, {scratch};")
            self.lasting.append(scratch)
        for number, param in enumerate(self.function.params):
            if param.kind == "seed":
                self.clean.append(self.result(32, f"ld.param.u32 {{}}, [p{number}];"))
            elif param.kind == "pointer":
                self.lasting.append(self.result(64, f"ld.param.u64 {{}}, [p{number}];"))
        if not self.lasting or self.choose.random() < 0.4:
            tile = self.result(64, "mov.u64 {}, tile;")
            self.add(f"cvta.shared.u64 {tile}, {tile}; mad.wide.u32 {tile}, {lane}, {ROOM}, {tile};")
            self.lasting.append(tile)
        self.pointers = list(self.lasting)
        for bits in self.data:
            self.keep(bits, f"cvt.u{bits}.u32 {{}}, {self.seed()};")
            self.keep(bits, f"mad.lo.u{bits} {{}}, {self.data[bits][0]}, 28013, {self.number(bits)};")
        if self.depot:
            self._depot()

    def _depot(self) -> None:
        """Have local memory as compilers have it, by two addresses, and store some of it."""
        self.local = self.result(64, "mov.u64 {}, depot;")
        generic = self.result(64, f"cvta.local.u64 {{}}, {self.local};")
        if self.choose.random() < 0.5:
            self.pointers += [generic, self.result(64, f"add.u64 {{}}, {generic}, {ROOM};")]
        else:
            # Store to a part of each word: a word without any store has arbitrary values after ptxas.
            for word in range(0, 2 * ROOM, 4):
                width = self.choose.choice((8, 16, 32))
                value = self.choose.choice(self.data[max(width, 16)])
                self.add(f"st.local.b{width} [{self.local}+{word}], {value};")
        for _ in range(self.choose.randint(0, 4)):
            self._store("st.local", self.local, 2 * ROOM, 16)

    def number(self, bits: int) -> int:
        """Return an immediate."""
        small = self.choose.choice((0, 1, 3, 127, 128, 255, -self.choose.randrange(1, 128)))
        return self.choose.choice((small, small, self.choose.randrange(1 << min(bits, 32) - 1)))

    # Statements

    def _statement(self) -> None:
        kinds = {
            self._compute: 3,
            self._param_access: 6 if self.function.params else 0,
            self._memory: 3 if self.pointers else 0,
            self._local_access: 3 if self.depot else 0,
            self._branch: 1 if self.depth < 2 else 0,
            self._loop: 0.5 if self.depth < 2 else 0,
            self._early: 0 if self.kernel else 0.6,
            self._collect: 1 if self.uniform() else 0,
            self._call: 1.5 if self.program.functions and self.depth < 2 else 0,
            self._trace_one: 0.5,
        }
        self.choose.choices(list(kinds), list(kinds.values()))[0]()

    def _compute(self) -> None:
        bits = self.choose.choice((16, 32, 32, 64))
        a, b = self.some(bits), self.some(bits)
        number, few = self.number(bits), self.choose.randrange(bits)
        half, word = self.some(16), self.some(32)
        lines = f"""add.s{bits} {{}}, {a}, {b};
and.b{bits} {{}}, {a}, {number};
or.b{bits} {{}}, {a}, {b};
xor.b{bits} {{}}, {a}, {b};
shl.b{bits} {{}}, {a}, {few};
shr.u{bits} {{}}, {a}, {few};
shr.s{bits} {{}}, {a}, {few};
mul.lo.s{bits} {{}}, {a}, {number};
selp.b{bits} {{}}, {a}, {b}, {self.predicate().strip("!")};
"""
        lines += {
            16: f"cvt.u16.u32 {{}}, {word};\ncvt.s16.s8 {{}}, {a};",
            32: f"""prmt.b32 {{}}, {a}, {b}, {self.choose.randrange(1 << 16)};
bfe.u32 {{}}, {a}, {few}, 8;
mov.b32 {{}}, {{{{{half}, {self.some(16)}}}}};
cvt.u32.u8 {{}}, {half};""",
            64: f"mov.b64 {{}}, {{{{{word}, {self.some(32)}}}}};\ncvt.s64.s32 {{}}, {word};",
        }[bits]
        self.keep(bits, self.guard(0.15) + self.choose.choice(lines.splitlines()))

    def _access(self, size: int, alignment: int) -> tuple[int, int, int]:
        """Return the width of an element in bytes, how many there are, and an offset."""
        widths = [width for width in (1, 2, 4, 8) if width <= min(size, alignment)]
        width = self.choose.choice(widths)
        counts = [count for count in (1, 1, 1, 2, 4) if width * count <= min(size, alignment, 16)]
        count = self.choose.choice(counts)
        # Most accesses are among the first bytes, so that they meet.
        room = min(size, max(self.choose.choice((8, 8, 16, size)), width * count))
        return width, count, self.choose.randrange(room // (width * count)) * width * count

    def _load(self, opcode: str, base: str, size: int, alignment: int) -> None:
        width, count, offset = self._access(size, alignment)
        letter = self.choose.choice("us" if width < 4 else "usb")
        # An element may be extended to a wider register.
        wide = [bits for bits in self.data if bits >= width * 8]
        bits = wide[0] if letter == "b" else self.choose.choice(wide)
        targets = [self.new(bits) for _ in range(count)]
        guard = "" if base[0] == "y" else self.guard(0.15)
        assigned = [register for register in self.data[bits] if register not in self.clean]
        if guard and count == 1 and assigned:
            # The register keeps its value in lanes that do not load.
            targets = [self.choose.choice(assigned)]
        operand = targets[0]
        if count > 1:
            named = [target if self.choose.random() < 0.85 else "_" for target in targets[1:]]
            opcode, operand = f"{opcode}.v{count}", f"{{{', '.join((targets[0], *named))}}}"
        self.add(f"{guard}{opcode}.{letter}{width * 8} {operand}, [{base}+{offset}];")
        self.data[bits] += targets
        for target in targets:
            if self.choose.random() < 0.6:
                self._trace(target)

    def _store(self, opcode: str, base: str, size: int, alignment: int) -> None:
        width, count, offset = self._access(size, alignment)
        bits = max(16, width * 8)
        # ptxas spoils a register of 64 bits whose lower bits are in a vector, which no compiler writes.
        bits = self.choose.choice((bits, 64)) if count == 1 else bits
        values = [
            self.some(bits) if self.choose.random() < 0.85 else str(self.number(width * 8))
            for _ in range(count)
        ]
        operand = values[0]
        if count > 1:
            opcode, operand = f"{opcode}.v{count}", f"{{{', '.join(values)}}}"
        guard = "" if base[0] == "x" else self.guard(0.12)
        self.add(f"{guard}{opcode}.b{width * 8} [{base}+{offset}], {operand};")

    def _param_access(self) -> None:
        """Load from a parameter, or by its address; or store to a result."""
        number = self.choose.randrange(len(self.function.params))
        param, name = self.function.params[number], f"p{number}"
        if self.function.results and self.choose.random() < 0.3 and self.function.results[0].kind == "struct":
            result = self.function.results[0]
            self._store("st.param", "q0", result.size, result.alignment)
        elif param.kind == "struct" and self.choose.random() < 0.2:
            address = self.result(64, f"mov.b64 {{}}, {name};")
            self._load("ld.local", address, param.size, param.alignment)
            generic = self.result(64, f"cvta.local.u64 {{}}, {address};")
            self._load("ld", generic, param.size, param.alignment)
        elif param.kind in ("struct", "number"):
            self._load("ld.param", name, param.size, param.alignment)

    def _memory(self) -> None:
        """Access the memory behind a pointer, at times by an address that is put together of parts."""
        pointer = self._pointer(self.pointers)
        for _ in range(self.choose.randint(1, 3)):
            self._reach("", pointer, ROOM)

    def _local_access(self) -> None:
        if self.choose.random() < 0.4:
            self._reach(".local", self.choose.choice((self.local, "depot")), 2 * ROOM)
            return
        # Half of the depot, sometimes a different one in each lane.
        half = self.result(64, f"mov.u64 {{}}, depot+{ROOM};")
        if self.choose.random() < 0.2:
            self.add(f"@{self.predicate()} mov.u64 {half}, {self.local};")
        self._reach(".local", half, ROOM)

    def _reach(self, space: str, base: str, size: int) -> None:
        """Load or store."""
        opcode, access = self.choose.choice((("ld", self._load), ("st", self._store)))
        access(opcode + space, base, size, 16)

    def _pointer(self, pointers: list[str]) -> str:
        """Return a register with one of some pointers, or with the same put together of parts."""
        one, other = self.choose.choice(pointers), self.choose.choice(pointers)
        if self.choose.random() < 0.4:
            return one
        names = {"x": one, "y": other, "p": self.predicate(), "q": self.predicate().strip("!")}
        names |= {name: self.new(32 if name in "abc" else 64) for name in "abcdefghi"}
        text = re.sub(r"\b[a-ipqxy]\b", lambda match: names[match[0]], self.choose.choice(_PARTS))
        self.add(f"{text};")
        return names["d"]

    def _inner(self, count: int) -> None:
        """Add statements that not all lanes may reach."""
        clean, pointers, self.depth = list(self.clean), list(self.pointers), self.depth + 1
        for _ in range(count):
            self._statement()
        self.clean, self.pointers, self.depth = clean, pointers, self.depth - 1

    def uniform(self) -> bool:
        """Return whether all lanes are here that entered the function."""
        return not self.depth and not self.function.early

    def label(self) -> str:
        """Return a new label; those of other functions are equal."""
        self.marks += 1
        return f"$L{self.marks}"

    def _branch(self) -> None:
        other, end, predicate = self.label(), self.label(), self.predicate()
        self.add(f"@{predicate} bra {other};")
        self._inner(self.choose.randint(1, 2))
        self.add(f"bra {end};\n{other}:")
        self._inner(self.choose.randint(0, 2))
        self.add(f"{end}:")

    def _loop(self) -> None:
        again, turn, predicate = self.label(), self.new(32), self.new(1)
        turns = self.result(32, f"and.b32 {{}}, {self.seed()}, 1;")
        self.add(f"mov.u32 {turn}, 0;\n{again}:")
        self.clean.append(turn)
        self._inner(self.choose.randint(1, 2))
        self.add(f"add.u32 {turn}, {turn}, 1; setp.le.u32 {predicate}, {turn}, {turns};")
        self.add(f"@{predicate} bra {again};")

    def _early(self) -> None:
        """Return early, in some lanes."""
        self.add(f"@{self.predicate()} ret;")
        self.function.early = True

    def _collect(self) -> None:
        """Wait for each other."""
        self.function.collective = True
        if self.choose.random() < 0.5:
            mode = self.choose.choice(("bfly", "down", "idx"))
            self.keep(32, f"shfl.sync.{mode}.b32 {{}}, {self.seed()}, {self.choose.randrange(8)}, 31, -1;")
            return
        tile, other = self.new(64), self.new(64)
        lane, mirrored, value = self.new(32), self.new(32), self.new(32)
        self.add(f"""mov.u32 {lane}, %tid.x; sub.u32 {mirrored}, {LANES - 1}, {lane}; mov.u64 {tile}, tile;
mad.wide.u32 {other}, {mirrored}, {ROOM}, {tile}; mad.wide.u32 {tile}, {lane}, {ROOM}, {tile};
bar.sync 0; st.shared.u32 [{tile}+4], {self.seed()};
bar.sync 0; ld.shared.u32 {value}, [{other}+4]; bar.sync 0;""")
        self.data[32].append(value)
        self.clean.append(value)

    def _call(self) -> None:
        fitting = [
            function
            for function in self.program.functions
            if (self.uniform() or not function.collective)
            and (function.linkage or function.module == self.function.module)
        ]
        if not fitting:
            return
        callee = self.choose.choice(fitting)
        self.function.collective |= callee.collective
        guard = "" if callee.collective else self.guard(0.25)
        self.add("{")
        for letter, params in (("y", callee.results), ("x", callee.params)):
            self.lines += [f"{param.declared(f'{letter}{number}')};" for number, param in enumerate(params)]
        for number, param in enumerate(callee.params):
            self._give(f"x{number}", param)
        results, params = (
            f"({', '.join(f'{letter}{number}' for number in range(len(params)))})"
            for letter, params in (("y", callee.results), ("x", callee.params))
        )
        uni = "" if guard else ".uni"
        self.add(f"{guard}call{uni} {f'{results}, ' if callee.results else ''}{callee.name}, {params};")
        for result in callee.results:
            if result.kind == "pointer":
                # A pointer that may be undefined is not loaded: no address may reach the trace.
                if not (guard or callee.early):
                    self.pointers.append(self.result(64, "ld.param.u64 {}, [y0];"))
                continue
            for _ in range(1 if result.kind != "struct" else self.choose.randint(1, 3)):
                self._load("ld.param", "y0", result.size, result.alignment)
        self.add("}")

    def _give(self, name: str, param: Param) -> None:
        """Store an argument or a result."""
        if param.kind == "seed":
            self.add(f"st.param.b32 [{name}], {self.seed()};")
        elif param.kind == "pointer":
            pointers = self.lasting if name[0] == "q" else self.pointers
            self.add(f"st.param.b64 [{name}], {self._pointer(pointers)};")
        elif param.kind == "struct":
            for _ in range(self.choose.randint(1, 4)):
                self._store("st.param", name, param.size, param.alignment)
        else:
            bits = max(16, param.size * 8)
            self.add(f"st.param.b{param.size * 8} [{name}], {self.some(bits)};")

    def _trace_one(self) -> None:
        self._trace(self.some(self.choose.choice(list(self.data))))

    def _trace(self, register: str) -> None:
        bits = {"h": 16, "r": 32, "d": 64}[register[1]]
        self.add(f"st.global.u{bits} [{self.log}+{self.program.slot() * 8 * LANES}], {register};")


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(Program(int(sys.argv[1])).texts))
