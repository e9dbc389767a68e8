"""
Damage pairs of PTX modules at random, and read, combine, inline and assemble them.

    python tests/differential/hostile.py --cases 20000 --execute 200 --seconds 500 --workers 16

An input is refused with an error of this package, left to nvJitLink with a reason, or refused by the
assembler. One that passes is compared with nvJitLink's link of the two modules: functions, kernels, and the
bytes of variables; with --execute, which needs a device, also what the kernels write. A program that reads
what nobody wrote has no result, and is counted apart: see `executed`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import random
import re
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parent))

import ptx_mutations
import servers

import numba_ptxlink as pl
from numba_ptxlink._formats import elf, ptx
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._link.fusion.combine import NotCombinedError, combine
from numba_ptxlink._link.fusion.fuse import fuse
from numba_ptxlink._link.inputs import Input
from numba_ptxlink._tools import nvjitlink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ARCH = pl.Arch.of(ptx_mutations.ARCH)
COMPILED = 8
"""Pairs of modules that NVRTC compiles, beside those that are written down."""
LONGEST = 60
"""Seconds for one case."""
LONGEST_RUN = 15
"""Seconds for the execution of one cubin."""
ROOM = 1 << 16
"""Bytes that a kernel may write."""
RESERVED = 0.4
"""The part of the time that is left for executions."""

AS_THEIRS = "linked as by nvJitLink"
OTHER_REGISTERS = "linked as by nvJitLink, with other registers in a caller"

_SYMBOL = struct.Struct("<IBBHQQ")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d{1,4})\];")
# STT_OBJECT of the gABI, and the number that NVIDIA's tools give variables.
_VARIABLE = (1, 13)


class Outcome(NamedTuple):
    """
    What became of a case.

    Args:
        word: "refused", "left", "assembler refuses", "linked", or what is wrong.
        detail: The reason or the error, in one line.
    """

    word: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        """Whether this must not be."""
        return self.word.startswith("WRONG")


class Image(NamedTuple):
    """
    What is compared of a cubin.

    Args:
        code: The code of each function, by the name of its section.
        kernels: The size of each kernel's parameters, likewise.
        variables: Name, size and bytes of each variable.
    """

    code: dict[str, bytes]
    kernels: dict[str, int]
    variables: Counter[tuple[str, int, bytes]]


def case(seed: int, compiled: int = COMPILED) -> tuple[str, str]:
    """Return the modules of the case *seed*, drawn among *compiled* pairs of NVRTC and others."""
    choice = random.Random(seed)  # noqa: S311 - a choice, not a secret
    return ptx_mutations.mutated(choice.choice(ptx_mutations.pairs(compiled)), choice)


def outcome(texts: tuple[str, str], *, compare: bool = True, stage=lambda _: None) -> Outcome:
    """
    Return what becomes of two modules.

    Args:
        texts: The modules.
        compare: Whether to assemble what was made of them, and to compare it with nvJitLink's link.
        stage: Is told what is done next.
    """
    inputs = [Input(PTX, f"{number}.ptx", text.encode()) for number, text in enumerate(texts)]
    stage("fuse")
    try:
        everything = len(texts[0]) % 2 == 0
        fused = fuse(inputs, ARCH, everything=everything)
    except pl.PtxlinkError as error:
        return Outcome("refused", first_line(error))
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return Outcome("WRONG: exception", f"{type(error).__name__}: {first_line(error)}")
    if isinstance(fused, str):
        return Outcome("left", fused)
    if not compare:
        return Outcome("linked")
    stage("assembler")
    try:
        cubin = pl.assemble(fused.input.code, ARCH).code
    except pl.AssembleError as error:
        return Outcome("assembler refuses", reason(error))
    return compared(texts, cubin, stage)


def compared(texts: tuple[str, str], cubin: bytes, stage) -> Outcome:
    """Compare *cubin*, and the modules combined without inlining, with what nvJitLink links of *texts*."""
    stage("nvjitlink")
    theirs, refusal = b"", ""
    try:
        theirs = nvjitlink.link(sources(texts), [f"-arch={ARCH.sm}"]).code
    except pl.LinkError as error:
        refusal = reason(error)
    stage("combine")
    try:
        combined = combine([ptx.parse(text) for text in texts]).text
        stage("assembler")
        pl.assemble(combined, ARCH, relocatable=True)
    except (NotCombinedError, pl.LinkError) as error:
        # Equal definitions are merged before modules are combined.
        return Outcome("linked, with equal definitions", str(error))
    except pl.AssembleError as error:
        # The alignment of a result is no matter between two modules, and is one within a single module.
        word = "linked, and refused without inlining" if theirs else "linked without what nothing calls"
        return Outcome(word, reason(error))
    if not theirs:
        return Outcome("linked here alone", refusal)
    stage("nvjitlink")
    # As PTX, of which both links have one compiler: an nvJitLink reads no cubins of newer ones.
    ours = read(nvjitlink.link([(PTX, "combined", combined.encode())], [f"-arch={ARCH.sm}"]).code)
    expected = read(theirs)
    stage("compare")
    if difference := unlike(expected, ours):
        return Outcome("WRONG: combined to something else", difference)
    if difference := unlike_after_inlining(expected, read(cubin)):
        return Outcome("WRONG: inlined to something else", difference)
    return Outcome(AS_THEIRS if expected.code == ours.code else OTHER_REGISTERS)


def sources(texts: tuple[str, str]) -> list[tuple[str, str, bytes]]:
    """Return nvJitLink's inputs."""
    return [(PTX, f"{number}.ptx", text.encode()) for number, text in enumerate(texts)]


def read(cubin: bytes) -> Image:
    """Return what is compared of *cubin*."""
    image = elf.read(cubin, "cubin")
    contents = {section.name: section.content for section in image.sections}
    table, names = image.section(".symtab"), elf.symbol_names(image)
    variables: Counter[tuple[str, int, bytes]] = Counter()
    for name, entry in zip(names, _SYMBOL.iter_unpack(table.content if table else b""), strict=False):
        _, info, _, section, at, size = entry
        if info & 15 in _VARIABLE and 0 < section < len(image.sections):
            # What is private and has the name of something else gets another one.
            plain = re.sub(r"__\d+_*$", "", name)
            variables[plain, size, image.sections[section].content[at : at + size]] += 1
    return Image(
        {name: content for name, content in contents.items() if name.startswith(".text.")},
        {name: len(content) for name, content in contents.items() if name.startswith(".nv.constant0.")},
        variables,
    )


def unlike(expected: Image, ours: Image) -> str:
    """
    Return what differs, but for code: ptxas may use what it knows of a function in the same module.

    Nor are parameters compared here: relocatable code has less for a kernel named as its parameter.
    """
    if expected.code.keys() != ours.code.keys():
        return f"functions {sorted(expected.code.keys() ^ ours.code.keys())}"
    if expected.variables != ours.variables:
        return f"variables {_shown(expected.variables - ours.variables, ours.variables - expected.variables)}"
    return ""


def unlike_after_inlining(expected: Image, ours: Image) -> str:
    """Return what differs that inlining must not change: kernels with their parameters, and variables."""
    if expected.kernels != ours.kernels:
        return f"kernels {sorted(expected.kernels)} and {sorted(ours.kernels)}"
    more = {variable for variable in ours.variables - expected.variables if not variable[0].startswith("$")}
    return f"more variables {_shown(more)}" if more else ""


def _shown(*sets: Iterable[object]) -> str:
    return " and ".join(str(sorted(map(str, part)))[:200] for part in sets)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [""])[0][:200]


def reason(error: pl.PtxlinkError) -> str:
    """Return the first message in a tool's log."""
    lines = [line for line in error.log.splitlines() if "error" in line or "fatal" in line.lower()]
    return (lines or [first_line(error)])[0][:200]


def answer(seed: int, say) -> None:
    """Say what is done next with the case *seed*, and what became of it."""
    say(outcome(case(seed), stage=say))


def outcomes(seeds: Iterable[int], workers: int, ends: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of cases, whatever ends the process that runs them; see `servers.answers`."""
    for reply in servers.answers([sys.executable, __file__, "--serve"], seeds, workers, ends=ends):
        stage = reply.said[-1] if reply.said else "start"
        if reply.ended is None:
            yield reply.request, Outcome(*stage)
        else:
            theirs = "" if stage in ("assembler", "nvjitlink") else "WRONG: "
            what = "hang" if reply.hung else "crash"
            yield reply.request, Outcome(f"{theirs}{what} in {stage}", reply.error)


WAYS = ("ours", "theirs", "theirs unoptimised", "ours unoptimised", "combined", "ours again")
"""
How a case is linked before it is executed: here; by nvJitLink; by it without optimisation; what is made of
it here, assembled without optimisation; as the two modules in one, nothing inlined; and here once more, over
what the others left in memory, which the driver does not clear for a module.
"""


def cleared(text: str) -> str:
    """Return *text* with zeros stored to each local variable, which may lack a store by now."""

    def clear(found: re.Match[str]) -> str:
        name, size = found[1], int(found[2])
        stores = (f"st.local.u8 [{name}+{at}], 0;" for at in range(size))
        return " ".join((found[0], *stores))

    return _LOCAL.sub(clear, text)


def links(seed: int) -> Iterator[bytes]:
    """Yield the cubins of the case *seed*, one for each of WAYS, whose local variables begin as zeros."""
    one, other = case(seed)
    texts = cleared(one), cleared(other)
    inputs = [Input(PTX, f"{number}.ptx", text.encode()) for number, text in enumerate(texts)]
    fused = fuse(inputs, ARCH, everything=len(texts[0]) % 2 == 0)
    assert not isinstance(fused, str)
    ours = pl.assemble(fused.input.code, ARCH).code
    yield ours
    yield nvjitlink.link(sources(texts), [f"-arch={ARCH.sm}"]).code
    yield nvjitlink.link(sources(texts), [f"-arch={ARCH.sm}", "-O0"]).code
    yield pl.assemble(fused.input.code, ARCH, opt_level=0).code
    yield pl.assemble(combine([ptx.parse(text) for text in texts]).text, ARCH).code
    yield ours


@functools.cache
def device_and_stream() -> tuple[Any, Any]:
    """Return the device, with a context in this process, and a stream."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return device, device.create_stream()


def run(cubin: bytes) -> str:
    """
    Return a digest of what each kernel of *cubin* writes to memory that its parameters point to.

    Needs a device. An error of the driver ends the process, whose context is lost.
    """
    import numpy as np
    from cuda.bindings import runtime
    from cuda.core import LaunchConfig, ObjectCode, launch

    device, stream = device_and_stream()
    digest = hashlib.sha256()
    for name in sorted(section.removeprefix(".nv.constant0.") for section in read(cubin).kernels):
        buffer = device.allocate(ROOM, stream=stream)
        stream.sync()
        runtime.cudaMemset(int(buffer.handle), 0, ROOM)
        kernel = ObjectCode.from_cubin(cubin).get_kernel(name)
        config = LaunchConfig(grid=1, block=64, shmem_size=1024)
        launch(stream, config, kernel, int(buffer.handle), np.int32(3))
        stream.sync()
        host = np.zeros(ROOM, np.uint8)
        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        runtime.cudaMemcpy(host.ctypes.data, int(buffer.handle), ROOM, kind)
        digest.update(f"{name} ".encode())
        digest.update(host.tobytes())
        buffer.close()
    return digest.hexdigest()


def answer_by_running(request: list[int], say) -> None:
    """Say what the links of a case do, but for those that were run before."""
    seed, done = request
    cubins = list(links(seed))
    device_and_stream()
    for cubin in cubins[done:]:
        # All before may take as long as a case.
        signal.alarm(LONGEST_RUN)
        say(run(cubin))


def runs(seeds: Sequence[int], workers: int, ends: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
    """Yield how cases execute, linked here and by nvJitLink. A fault takes the process with it."""
    said: dict[int, list[str]] = {seed: [] for seed in seeds}
    command = [sys.executable, __file__, "--run"]
    while waiting := [(seed, len(done)) for seed, done in said.items() if len(done) < len(WAYS)]:
        if time.monotonic() > ends:
            return
        for reply in servers.answers(command, waiting, workers, ends=ends):
            seed, _ = reply.request
            said[seed] += reply.said
            if reply.ended is not None:
                said[seed].append("ended: hang" if reply.hung else "ended: fault")
            if len(said[seed]) == len(WAYS):
                yield seed, executed(said[seed])


def executed(said: Sequence[str]) -> Outcome:
    """
    Return how a case executes, of which the links did what is *said*, one for each of WAYS.

    What a program reads that nobody wrote differs with the level of optimisation, or with what was in memory
    before; or with what the assembler sees at one time, where the two modules in one do as what is inlined
    does. No case traps by intention: where nvJitLink's link faults, an access was damaged.
    """
    did = dict(zip(WAYS, said, strict=True))
    ours, theirs = did["ours"], did["theirs"]
    if theirs == ours:
        ended = ours.startswith("ended")
        return Outcome("executed, and ended as by nvJitLink" if ended else "executed, and equal")
    if theirs.startswith("ended") or theirs != did["theirs unoptimised"]:
        return Outcome("executed, and not defined")
    if not ours.startswith("ended") and {did["ours unoptimised"], did["ours again"]} != {ours}:
        return Outcome("executed, and not defined")
    if ours == did["combined"]:
        return Outcome("executed as the modules in one, and not as by nvJitLink")
    return Outcome("WRONG: executed to something else", f"{ours}, by nvJitLink {theirs}")


def main() -> int:
    """Return 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after that time")
    parser.add_argument(
        "--execute", type=int, nargs="?", const=200, default=0, help="how many to run on a device"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Every case is done, and none is kept.
    os.environ["NUMBA_PTXLINK_CACHE"] = "0"
    if options.serve:
        servers.serve(answer, LONGEST)
        return 0
    if options.run:
        servers.serve(answer_by_running, LONGEST)
        return 0
    seeds = range(options.first, options.first + options.cases)
    return check(seeds, options.workers, options.execute, options.seconds)


def check(seeds: range, workers: int, execute: int, seconds: float) -> int:
    """Run the cases; print the counts, and what is wrong."""
    alone: Counter[str] = Counter()
    accepted: list[int] = []
    wrong = 0
    began = time.monotonic()
    links = servers.Progress("cases", len(seeds))
    for seed, result in outcomes(seeds, workers, began + seconds * (1 - RESERVED if execute else 1)):
        wrong += _noted(links, seed, result)
        if result.word == "linked here alone":
            alone[result.detail.split(";")[-1].strip()[:90]] += 1
        if result.word in (AS_THEIRS, OTHER_REGISTERS):
            accepted.append(seed)
    print(links)
    for detail, number in alone.most_common(12):
        print(f"{number:8} nvJitLink alone says: {detail}")
    # The order of the answers is chance.
    chosen = random.Random(seeds.start).sample(sorted(accepted), min(execute, len(accepted)))  # noqa: S311
    executions = servers.Progress("executions", len(chosen))
    for seed, result in runs(chosen, workers, began + seconds):
        wrong += _noted(executions, seed, result)
    print(executions)
    done, ran = links.counts.total(), executions.counts.total()
    print(
        f"{done} cases from seed {seeds.start} on, {ran} of {len(accepted)} accepted executed, {wrong} wrong"
    )
    return int(wrong > 0)


def _noted(progress: servers.Progress, seed: int, result: Outcome) -> bool:
    progress.note(result.word)
    if result.wrong:
        print(f"case {seed}: {result.word}: {result.detail}", flush=True)
    return result.wrong


if __name__ == "__main__":
    sys.exit(main())
