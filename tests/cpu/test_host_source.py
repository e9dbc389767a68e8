"""Instructions in C++ for the host have the results of the tests' PTX machine and of the CPU."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import processes
import pytest
from emulator import Machine
from instructions import HEAD, Sample, bits_of, kernel, samples

from numba_ptxlink import _cpu
from numba_ptxlink._cpu import cxx, host_source
from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration

COUNT, LANES = 512, 256
_THREAD_INDEX = re.compile(r"mov.u32 %i, %ctaid.x;.*")
_INCLUDES = "".join(
    f"#include <{name}.h>\n" for name in ("float", "math", "stdint", "stdio", "stdlib", "string")
)
# In LLVM, instructions of programs that the host does not run: of warps, and clocks.
DEVICE_ONLY = {"llvm.readcyclecounter"}
_MAIN = """\
static char* content(const char* path, size_t size)
{{
  char* memory = (char*)malloc(size);
  FILE* file = fopen(path, "rb");
  if (fread(memory, 1, size, file) != size) abort();
  fclose(file);
  return memory;
}}
int main(int, char** paths)
{{
  char* in = content(paths[1], {size});
  char* out = (char*)calloc({size}, 1);
{calls}
  FILE* file = fopen(paths[2], "wb");
  fwrite(out, 1, {size}, file);
  return fclose(file);
}}
"""


def function(name: str, sample: Sample) -> str:
    """Return a function like the kernel of a sample, whose last parameter is the index of the element."""
    head, brace, body = kernel(name, sample).partition(")\n{")
    head = head.replace(".entry", ".func").replace(".u64", ".b64")
    return f"{head}, .param .b32 index{brace}{_THREAD_INDEX.sub('ld.param.u32 %i, [index];', body)}"


def every() -> list[Sample]:
    """Return all instructions of the sweeps."""
    return [*samples(), *samples(further=True)]


@pytest.fixture(scope="module")
def source() -> host_source.HostSource:
    """Return a function for each instruction in C++."""
    text = HEAD + "".join(function(f"k{number}", sample) for number, sample in enumerate(every()))
    return host_source.translate(text, [f"k{number}" for number in range(len(every()))])


def test_all_instructions_have_a_host_version(source):
    """No instruction of the sweeps is rejected."""
    assert {} == source.reasons


def test_a_call_through_a_pointer_is_refused():
    """The reason names the pointer, and not the register as if it were a function."""
    call = "ld.param.u64 %a, [index]; call %a, (), prototype; prototype: .callprototype _ ();"
    text = f"{HEAD}.visible .func f(.param .b64 index) {{ .reg .b64 %a; {call} ret; }}"
    assert ["it calls a function through a pointer; call the function by its name"] == [
        *host_source.translate(text, ["f"]).reasons.values()
    ]


def test_all_that_instructions_are_made_of_has_a_counterpart():
    """Each opcode and intrinsic of the two files of LLVM IR is a function of the prelude."""
    folder = Path(_cpu.__file__).parent
    text = "".join((folder / name).read_text() for name in ("instructions.ll", "program.ll"))
    opcodes = set(re.findall(r"^\s+%?[\w.]+ = (\w+)(?= )", text, re.MULTILINE)) - {
        "alloca",
        "call",
        "phi",
        "icmp",
        "fcmp",
    }
    intrinsics = set(re.findall(r"@(llvm\.[\w.]+)\(", text)) - DEVICE_ONLY
    names = {f"op_{name}" for name in opcodes} | {
        cxx.symbol_name(re.sub(r"\.(?:[if]\d+|p0)(?=\.|$)", "", name)) for name in intrinsics
    }
    assert set() == {name for name in names if not re.search(rf"\b{name}\b", cxx.prelude())}


def expected(number: int, sample: Sample, operands: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of an instruction, and the bits of them that are defined."""
    dtype = np.dtype(f"u{bits_of(sample.result) // 8}")
    results = np.zeros(COUNT, dtype)
    if number < len(samples()):
        machine = Machine(HEAD + kernel("k", sample))
        address = machine.array(np.zeros(8 * COUNT, np.uint8))
        machine.launch("k", COUNT // LANES, LANES, [address, *map(machine.array, operands)])
        return machine.read(address, COUNT, dtype.str), machine.defined(address, results.nbytes).view(dtype)
    arrays = [results, *operands]
    regions = [Region(array.ctypes.data, array.nbytes, True, "array") for array in arrays]
    params = [struct.pack("Q", array.ctypes.data) for array in arrays]
    launch_config = Configuration((COUNT // LANES, 1, 1), (LANES, 1, 1))
    CpuProgram.of(HEAD + kernel("k", sample)).launch("k", launch_config, params, regions)
    return results, ~np.zeros_like(results)


class Case(NamedTuple):
    """An instruction: its operands, its results, and the bits of these that are defined."""

    opcode: str
    operands: list[np.ndarray]
    results: np.ndarray
    defined: np.ndarray


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Return special and random operands for each instruction."""
    all_cases = []
    for number, sample in enumerate(every()):
        values = sample.operands(COUNT, np.random.default_rng(number))
        operands = [np.ascontiguousarray(array) for array in values]
        all_cases.append(Case(sample.opcode, operands, *expected(number, sample, operands)))
    return all_cases


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "g++ -O0",
        "clang++ -O0 -fsanitize=undefined -fno-sanitize-recover",
        "g++ -O3 -march=native",
        "clang++ -O2",
    ],
)
def test_instructions_compute_on_the_host_what_they_compute_elsewhere(source, cases, options, tmp_path):
    """All bits are the same, and no behaviour of the C++ is undefined."""
    if not shutil.which(options.split()[0]):
        pytest.skip(f"{options.split()[0]} is not installed")
    calls, content = [], b""
    for number, case in enumerate(cases):
        passed = [f"out + {8 * COUNT * number}"]
        for operand in case.operands:
            passed.append(f"in + {len(content)}")
            content += operand.tobytes().ljust(8 * COUNT, b"\0")
        declared = " ".join(
            f"uint64_t a{index} = (uint64_t)({address});" for index, address in enumerate(passed)
        )
        pointers = ", ".join(f"(char*)&a{index}" for index in range(len(passed)))
        name = source.names[f"k{number}"]
        calls.append(
            f"  {{ {declared} for (uint32_t i = 0; i < {COUNT}; ++i) {name}({pointers}, (char*)&i); }}"
        )
    main = _MAIN.format(size=len(content), calls="\n".join(calls))
    (tmp_path / "main.cpp").write_text(f"{_INCLUDES}namespace {{\n{source.text}}}\n{main}")
    (tmp_path / "in").write_bytes(content)
    processes.run(*options.split(), "-o", tmp_path / "main", tmp_path / "main.cpp")
    processes.run(tmp_path / "main", tmp_path / "in", tmp_path / "out")
    written = np.fromfile(tmp_path / "out", np.uint8)
    wrong = []
    for number, (opcode, operands, results, defined) in enumerate(cases):
        start = 8 * COUNT * number
        actual = written[start : start + results.nbytes].view(results.dtype)
        differ = (actual ^ results) & defined != 0
        if opcode.endswith("f64") and results.dtype.itemsize == 8:
            # A double that is NaN has the sign and the payload that the processor gives it.
            doubles = [array.view("f8") for array in (actual, results)]
            differ &= ~(np.isnan(doubles[0]) & np.isnan(doubles[1]))
        wrong += [
            (opcode, [hex(operand[index]) for operand in operands]) for index in np.flatnonzero(differ)[:1]
        ]
    assert [] == wrong
