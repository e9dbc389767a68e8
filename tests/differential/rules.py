"""What may differ between stock and the plugin, each with its reason; everything else is a difference."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """
    A difference that is allowed.

    Args:
        name: What it is called in reports.
        reason: Why it is right.
        applies: Tells it from stock's and the plugin's outcome.
    """

    name: str
    reason: str
    applies: Callable[[Outcome, Outcome], bool]


_OFFSET = re.compile(r"\b0x[0-9a-f]+")
_ALIGNED = 64


def unpadded(code: dict[str, str]) -> dict[str, str]:
    """Return the digests of machine code without those of constant arrays, of which only the sizes stay."""
    return {
        part: re.sub(":[0-9a-f]+", "", digest) if part == "nv.constant3" else digest
        for part, digest in code.items()
    }


@dataclass
class Comparison:
    """
    What a comparison found.

    Args:
        compared: How many launches were compared.
        allowed: How often each rule was needed.
        differences: By kind ("outcome", "names", "entry", "code"), what differs in which launch.
    """

    compared: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    differences: dict[str, list[str]] = field(default_factory=dict)

    def differ(self, kind: str, where: str, what: str) -> None:
        """Note a difference."""
        self.differences.setdefault(kind, []).append(f"{where}: {what}")

    def summary(self) -> str:
        """Return the figures in one line."""
        counts = {kind: len(found) for kind, found in self.differences.items()}
        return f"{self.compared} launches, differences {counts or 0}, allowed {dict(self.allowed)}"


OUTCOMES = (
    Rule(
        "the plugin's error is a kind of stock's",
        "Errors of links derive from what callers of numba-cuda catch, and name the inputs.",
        lambda stock, plugin: (
            "error" in stock
            and "error" in plugin
            and stock["error"][0] != plugin["error"][0]
            and stock["error"][0] in plugin["error"]
        ),
    ),
    Rule(
        "CUDA C++ without a driver",
        "Stock compiles CUDA C++ by a tool that loads the driver, unless it links with LTO.",
        lambda stock, plugin: (
            stock.get("error", [""])[0] == "DynamicLibNotFoundError" and "error" not in plugin
        ),
    ),
    Rule(
        "CUDA C++ with line numbers",
        "Stock links code with lines, be it a helper's, and LTO-IR without, which nvJitLink refuses.",
        lambda stock, plugin: "'Debug Info Version'" in stock.get("text", "") and "error" not in plugin,
    ),
    Rule(
        "a function that calls itself",
        "Stock does not find it where sys.modules lacks its module, and knows no circles of functions.",
        lambda stock, plugin: "'insert_unresolved_ref'" in stock.get("text", "") and "error" not in plugin,
    ),
)
"""Rules about exceptions."""

CODE = (
    Rule(
        "LTO is given up where nothing is linked",
        "NVVM's PTX of the whole kernel is what an optimisation at link time starts from; compared is what "
        "stock's own PTX becomes without.",
        lambda stock, plugin: not plugin["files"] and stock["without_lto"] == plugin["code"],
    ),
    Rule(
        "lto=False is honoured",
        "Stock loses the option where the decorator has no signature; compared is what stock's PTX becomes.",
        lambda stock, plugin: not plugin["lto"] and stock["without_lto"] == plugin["code"],
    ),
    Rule(
        "padding of records differs",
        "NumPy leaves padding as it found the memory, so stock differs from itself from process to process.",
        lambda stock, plugin: (
            plugin["padding"] and unpadded(stock["without_lto"] or {}) == unpadded(plugin["code"])
        ),
    ),
)
"""Rules about machine code that need no disassembly."""


def compare(stock: dict[str, Any], plugin: dict[str, Any], folders: tuple[Path, Path]) -> Comparison:
    """Compare what became of programs, whose cubins lie in *folders*."""
    made = Comparison()
    for name, ours in plugin.items():
        pairs = list(zip(stock[name]["launches"], ours["launches"], strict=False))
        if len(stock[name]["launches"]) != len(ours["launches"]):
            made.differ(
                "outcome", name, f"{len(stock[name]['launches'])} launches, {len(ours['launches'])} here"
            )
        for number, (one, other) in enumerate(pairs):
            made.compared += 1
            where = f"{name}_{number}"
            compare_outcomes(made, where, one, other)
            if "error" not in one and "error" not in other:
                _compare_code(made, where, one, other, folders)
    return made


def same(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return which launches the plugin compiled otherwise in another process, order and hash seed."""
    return [
        f"{name}_{number}: {_short(a)}, then {_short(b)}"
        for name, second in other.items()
        for number, (a, b) in enumerate(zip(one[name]["launches"], second["launches"], strict=False))
        if _short(a) != _short(b)
    ]


def _short(outcome: Outcome) -> str:
    if "error" in outcome:
        return f"{outcome['error'][0]}: {outcome['message']}"
    return f"{outcome['entry']} {unpadded(outcome['code']) if outcome['padding'] else outcome['code']}"


def compare_outcomes(made: Comparison, where: str, stock: Outcome, plugin: Outcome) -> None:
    """Compare errors or, where there are none, names of one launch."""
    if "error" in stock or "error" in plugin:
        _compare_errors(made, where, stock, plugin)
    else:
        _compare_names(made, where, stock, plugin)


def _compare_errors(made: Comparison, where: str, stock: Outcome, plugin: Outcome) -> None:
    said = [f"{each['error'][0]}: {each['message']}" if "error" in each else "ok" for each in (stock, plugin)]
    if said[0] == said[1]:
        return
    for rule in OUTCOMES:
        if rule.applies(stock, plugin):
            made.allowed[rule.name] += 1
            return
    made.differ("outcome", where, f"stock {said[0]}, plugin {said[1]}")


def _compare_names(made: Comparison, where: str, stock: Outcome, plugin: Outcome) -> None:
    for what in ("kernels", "entry"):
        if stock[what] != plugin[what]:
            made.differ("names", where, f"{what} {stock[what]}, {plugin[what]} here")
    for what in ("entry_in_cubin", "entry_in_ir"):
        if not plugin.get(what, True):
            made.differ("entry", where, f"{what} is false")


def _compare_code(
    made: Comparison, where: str, stock: Outcome, plugin: Outcome, folders: tuple[Path, Path]
) -> None:
    if stock["code"] == plugin["code"]:
        return
    for rule in CODE:
        if rule.applies(stock, plugin):
            made.allowed[rule.name] += 1
            return
    # With fastmath or without optimisation the plugin keeps LTO, too.
    references = [("code", f"{where}.cubin")]
    if stock["without_lto"] and not (plugin["lto"] and plugin["files"]):
        references.append(("without_lto", f"{where}.without_lto.cubin"))
    for key, file in references:
        for name, applies in DISASSEMBLED.items():
            if applies(stock[key], plugin["code"], folders[0] / file, folders[1] / f"{where}.cubin"):
                made.allowed[name] += 1
                return
    key, file = references[-1]
    reference, cubins = stock[key], (folders[0] / file, folders[1] / f"{where}.cubin")
    parts = sorted(reference.keys() | plugin["code"].keys())
    differing = [part for part in parts if reference.get(part) != plugin["code"].get(part)]
    made.differ("code", where, f"{', '.join(differing)} ({cubins[0]} {cubins[1]})")


def _functions(cubin: Path) -> list[list[str]]:
    """Return the instructions of each function, without the names of symbols and labels."""
    from cuda import pathfinder

    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    text = subprocess.run([tool, "-c", str(cubin)], check=True, capture_output=True, text=True).stdout
    found: list[list[str]] = []
    for line in text.splitlines():
        if re.match(r"\s*\.type\s.*@function", line):
            found.append([])
        match = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
        if match and match[1] != "NOP":
            instruction = re.sub(r"\s*\(\*.*?\*\)", "", match[1])  # a remark, padded to the longest line
            plain = re.sub(r"`\(.*?\)|\$?_Z\w+|_\$_[\w$]+|\.L_\w+", "LABEL", instruction)
            plain = re.sub(r"\[RZ\]", "[0x0]", plain)
            found[-1].append(re.sub(r"\[([A-Z][\w.]*)\]", r"[\1+0x0]", plain))
    return found


def _lengths(code: dict[str, str]) -> dict[str, int]:
    """Return how long each section is, but for what aligning data in another order can take."""
    sizes = {part: sum(int(each.partition(":")[0]) for each in found.split()) for part, found in code.items()}
    return {part: size if part.startswith("text") else size // _ALIGNED for part, size in sizes.items()}


def things_change_places(one: Outcome, other: Outcome, stock: Path, plugin: Path) -> bool:
    """
    Return whether instructions differ in offsets only, and those one to one.

    Functions, shared arrays, and strings and other constants, are laid out in the order of their names.
    """
    lengths = _lengths(one), _lengths(other)
    if any(abs(lengths[0].get(part, 0) - lengths[1].get(part, 0)) > 1 for part in {*lengths[0], *lengths[1]}):
        return False
    pairs = itertools.zip_longest(*map(_by_structure, (stock, plugin)))
    there: dict[tuple[str, str], str] = {}
    back: dict[tuple[str, str], str] = {}
    for theirs, ours in pairs:
        if theirs is None or ours is None or _OFFSET.sub("", theirs) != _OFFSET.sub("", ours):
            return False
        if theirs == ours:
            continue
        memory = "constant" if "c[0x3]" in theirs else "shared"
        for a, b in zip(_OFFSET.findall(theirs), _OFFSET.findall(ours), strict=True):
            if there.setdefault((memory, a), b) != b or back.setdefault((memory, b), a) != a:
                return False
    return True


def _by_structure(cubin: Path) -> list[str]:
    """Return the instructions of all functions, which are ordered by all but their offsets."""
    functions = sorted(
        _functions(cubin), key=lambda lines: ([_OFFSET.sub("", line) for line in lines], lines)
    )
    return list(itertools.chain(*functions))


DISASSEMBLED = {
    "functions, shared arrays and constants change places": things_change_places,
}
"""Rules about machine code that look into the cubins."""


def first_askers(folder: Path) -> set[str]:
    """
    Return the programs whose LLVM IR has debug information in other functions in another order of programs.

    Numba compiles a function of its own once, with the options of the first that asks, and stock's code too
    depends on who that was.
    """
    found = set()
    for cold in (folder / "cold").glob("*.ll"):
        warm = folder / "warm" / cold.name
        units = [path.read_text().count("!DICompileUnit") for path in (cold, warm) if path.exists()]
        if len(set(units)) > 1:
            found.add(cold.stem.rpartition("_")[0])
    return found


def order_dependent(programs: Path) -> set[str]:
    """
    Return the programs whose LLVM IR differs in another process or another order, with stock too.

    numba-cuda numbers what it inlines and unrolls through the process, and copies whatever memory holds
    between the fields of a constant array of records.
    """
    varies = re.compile(r'inline="always"|literal_unroll\(|align=True\)(?s:.)*const\.array_like')
    return {path.stem for path in programs.glob("*.py") if varies.search(path.read_text())}
