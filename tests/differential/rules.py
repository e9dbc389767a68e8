"""Differences allowed between stock and the plugin, each with its reason; no others are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome = dict[str, Any]


class Rule(NamedTuple):
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


def compare(stock: dict[str, Any], plugin: dict[str, Any]) -> list[str]:
    """Return a line for each launch that ends differently with the plugin."""
    differences = []
    for name, result in plugin.items():
        pairs = list(zip(stock[name]["launches"], result["launches"], strict=False))
        if len(stock[name]["launches"]) != len(result["launches"]):
            differences.append(
                f"{name}: {len(stock[name]['launches'])} launches, {len(result['launches'])} here"
            )
        for number, (one, other) in enumerate(pairs):
            differences += [f"{name}_{number}: {difference}" for difference in _differences(one, other)]
    return differences


def _differences(stock: Outcome, plugin: Outcome) -> list[str]:
    if "error" not in stock and "error" not in plugin:
        differing = [field for field in ("kernels", "entry") if stock[field] != plugin[field]]
        missing = [field for field in ("entry_in_cubin", "entry_in_ir") if not plugin[field]]
        return [
            *(f"{field} {stock[field]}, {plugin[field]} here" for field in differing),
            *(f"{field} is false" for field in missing),
        ]
    results = [
        f"{outcome['error'][0]}: {outcome['message']}" if "error" in outcome else "ok"
        for outcome in (stock, plugin)
    ]
    if results[0] == results[1] or any(rule.applies(stock, plugin) for rule in OUTCOMES):
        return []
    return [f"stock {results[0]}, plugin {results[1]}"]


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
    # NumPy leaves the padding of records as it found the memory.
    return f"{outcome['entry']} {'' if outcome['padding'] else outcome['code']}"
