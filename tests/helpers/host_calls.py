"""Call exported functions from C++ and by `load(device="cpu")` with the same arguments; compare all bits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import processes
from cuda_toolkit import host_includes

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# The number of elements behind a pointer or in an array.
ELEMENTS = 16
_LETTERS = {"int": "i", "uint": "u", "float": "f", "float16": "f", "complex": "c"}
FLAGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
_PROGRAM = """\
#include "{stem}.h"
#include <cstdio>
#include <type_traits>
static FILE *arguments, *results;
static void read(void* to, size_t size)
{{
  if (fread(to, size, 1, arguments) != 1) throw "too few arguments";
}}
static void write(const void* from, size_t size) {{ fwrite(from, size, 1, results); }}
template<class T> struct memory {{
  alignas(16) std::remove_const_t<T> elements[{elements}];
  void before() {{ read((void*)elements, sizeof elements); }}
  void after() {{ write((const void*)elements, sizeof elements); }}
}};
template<class T> struct argument {{
  T value;
  void before() {{ read((void*)&value, sizeof value); }}
  T& get() {{ return value; }}
  void after() {{}}
}};
template<class T> struct argument<T*> : memory<T> {{ T* get() {{ return this->elements; }} }};
{views}
template<class R, class... A> void call(R (*function)(A...), argument<A>... passed)
{{
  (passed.before(), ...);
  if constexpr (std::is_void_v<R>)
    function(passed.get()...);
  else {{
    R result = function(passed.get()...);
    write((const void*)&result, sizeof result);
  }}
  (passed.after(), ...);
}}
template<class R, class... A> void call_all(R (*function)(A...))
{{
  for (int i = 0; i < {count}; ++i) call<R, A...>(function, argument<A>{{}}...);
}}
int main(int, char** paths)
{{
  arguments = fopen(paths[1], "rb");
  results = fopen(paths[2], "wb");
{calls}
  return fclose(results);
}}
"""
_VIEWS = """\
template<class T, class L> struct argument<numba_ptxlink::array_view<T, 1, L>> : memory<T> {{
  numba_ptxlink::array_view<T, 1, L> get() {{ return {{this->elements, {elements}}}; }}
}};
template<class T, class L> struct argument<numba_ptxlink::array_view<T, 2, L>> : memory<T> {{
  numba_ptxlink::array_view<T, 2, L> get() {{ return {{this->elements, 4, {elements} / 4}}; }}
}};
"""


class HostCalls:
    """
    Calls of the functions of an export, and the results and memory after them.

    Args:
        manifest: The manifest of the export, whose artifacts are "ptx" and "host".
        limits: The ranges of integer parameters, by function and parameter.
        count: The number of calls of each function.
    """

    def __init__(self, manifest: Path, limits: Mapping[tuple[str, str], tuple[int, int]], count: int) -> None:
        description = json.loads(manifest.read_text())
        self._folder, self._stem, self._count = manifest.parent, manifest.stem, count
        self._types, self._limits = description["types"], limits
        self._rng = np.random.default_rng(7)
        functions = [function for function in description["functions"] if function.get("host")]
        columns = [self._arguments(function) for function in functions]
        rows = (row for arguments in columns for row in zip(*arguments, strict=True))
        content = b"".join(np.ascontiguousarray(value).tobytes() for row in rows for value in row)
        (self._folder / "arguments").write_bytes(content)
        library = pl.load(manifest, device="cpu", checks=False)
        self.expected = {
            function["symbol"]: self._call(getattr(library, function["symbol"]), function, passed)
            for function, passed in zip(functions, columns, strict=True)
        }
        has_views = any(type_info["kind"] == "view" for type_info in self._types.values())
        text = _PROGRAM.format(
            stem=self._stem,
            elements=ELEMENTS,
            views=_VIEWS.format(elements=ELEMENTS) if has_views else "",
            count=count,
            calls="".join(f"  call_all({name});\n" for name in self.expected),
        )
        (self._folder / "main.cpp").write_text(text)

    def different(self, *compiler: str, runner: Sequence[str] = ()) -> dict[str, list[int]]:
        """
        Compile the functions and a program that calls them; return the calls of each that differ.

        Args:
            compiler: The compiler with its options.
            runner: The command that runs the program.
        """
        program, arguments, output = (self._folder / name for name in ("program", "arguments", "results"))
        sources = [self._folder / "main.cpp", self._folder / f"{self._stem}.host.cpp"]
        options = ["-std=c++17", *FLAGS, *host_includes(), f"-I{self._folder}", "-o", program]
        processes.run(*compiler, *options, *sources)
        processes.run(*runner, program, arguments, output)
        content, start, different_calls = output.read_bytes(), 0, {}
        for name, expected in self.expected.items():
            actual = np.frombuffer(content, expected.dtype, self._count, start)
            start += expected.nbytes
            differ = np.flatnonzero(~_equal(actual, expected))
            if differ.size:
                different_calls[name] = differ.tolist()
        assert start == len(content)
        return different_calls

    def _arguments(self, function: Mapping[str, Any]) -> list[np.ndarray]:
        return [
            self._column(function["symbol"], parameter["name"], parameter["type"])
            for parameter in function["parameters"]
        ]

    def _column(self, function: str, name: str, spelling: str) -> np.ndarray:
        kind = self._types[spelling]
        if kind["kind"] not in ("pointer", "view"):
            limits = self._limits.get((function, name))
            return self._values(dtype(self._types, spelling), self._count, limits)
        elements = dtype(self._types, kind.get("target") or kind["element"])
        shape = (4, ELEMENTS // 4) if kind.get("ndim") == 2 else (ELEMENTS,)
        return self._values(elements, self._count * ELEMENTS).reshape(self._count, *shape)

    def _values(self, dtype: np.dtype, count: int, limits: tuple[int, int] | None = None) -> np.ndarray:
        """Return numbers of all sizes, and special ones."""
        rng = self._rng
        if dtype.names:
            records = np.zeros(count, dtype)
            for name in dtype.names:
                records[name] = self._values(dtype.fields[name][0], count)
            return records
        if dtype.kind == "c":
            return self._values(np.dtype(f"f{dtype.itemsize // 2}"), 2 * count).view(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, count).astype(dtype)
        if dtype.kind == "f":
            special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 1e-40, 1e38, -1.5, 2.0, 1e300, 0.5]
            usual = rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count)
            with np.errstate(over="ignore"):
                return np.where(rng.random(count) < 0.15, rng.choice(special, count), usual).astype(dtype)
        if limits:
            return rng.integers(*limits, count).astype(dtype)
        info = np.iinfo(dtype)
        usual = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        special = rng.choice(np.array([info.min, info.max, 0, 1, 3, info.max // 2], dtype), count)
        return np.choose(rng.integers(0, 3, count), [usual, special, rng.integers(0, 40, count, dtype)])

    def _call(self, function: Any, description: Mapping[str, Any], columns: list[np.ndarray]) -> np.ndarray:
        """Return the results of a function, and the memory of its arguments after each call, as records."""
        kinds = [self._types[parameter["type"]]["kind"] for parameter in description["parameters"]]
        memory = [index for index, kind in enumerate(kinds) if kind in ("pointer", "view")]
        fields = [(f"memory_{index}", columns[index].dtype, columns[index].shape[1:]) for index in memory]
        if description["result"] != "void":
            fields.insert(0, ("result", dtype(self._types, description["result"]), ()))
        records = np.zeros(self._count, fields)
        for index in memory:
            records[f"memory_{index}"] = columns[index]
        with np.errstate(all="ignore"):
            if not memory:
                records["result"] = function(*columns)
                return records
            for number, record in enumerate(records):
                passed = [column[number] for column in columns]
                for index in memory:
                    passed[index] = record[f"memory_{index}"]
                returned = function(*passed)
                if description["result"] != "void":
                    record["result"] = returned
        return records


def dtype(types: Mapping[str, Any], spelling: str) -> np.dtype:
    """Return the NumPy type of a C type that a manifest describes."""
    kind, size = types[spelling]["kind"], types[spelling]["size"]
    if kind == "vector":
        element = dtype(types, types[spelling]["element"])
        return np.dtype([(name, element) for name in "xyzw"[: types[spelling]["count"]]])
    if kind != "struct":
        return np.dtype(bool if kind == "bool" else f"{_LETTERS[kind]}{size}")
    members = types[spelling]["members"]
    return np.dtype(
        {
            "names": [member["name"] for member in members],
            "formats": [dtype(types, member["type"]) for member in members],
            "offsets": [member["offset"] for member in members],
            "itemsize": size,
        }
    )


def _equal(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which elements have the same bits; for doubles also those that are both NaN."""
    if actual.dtype.names:
        return np.all([_equal(actual[name], expected[name]) for name in actual.dtype.names], axis=0)
    rows = [np.ascontiguousarray(records).reshape(len(records), -1) for records in (actual, expected)]
    if actual.dtype.kind == "c":
        rows = [values.view(f"f{values.itemsize // 2}") for values in rows]
    if rows[0].dtype.kind != "f":
        return (rows[0] == rows[1]).all(axis=1)
    bits = [values.view(f"u{values.itemsize}") for values in rows]
    # A double that is NaN has the sign and the payload that the processor gives it.
    are_nan = np.isnan(rows[0]) & np.isnan(rows[1]) & (rows[0].itemsize == 8)
    return ((bits[0] == bits[1]) | are_nan).all(axis=1)
