"""Call a function in Python and compiled, and count the calls that agree and those that differ."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._launch import arrays
from numba_ptxlink._launch.on_cpu import HostArguments
from numba_ptxlink._launch.results import Record
from numba_ptxlink.errors import DeviceFaultError, PtxlinkError

from . import agreement, python_side, samples, values
from .values import SkippedCallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

    from numba_ptxlink._launch.on_cpu import CpuFunction
    from numba_ptxlink._launch.values import Formal

# Instructions by which a compiled function stops for an exception.
_STOP_INSTRUCTIONS = ("trap", "__assertfail")
_LONG_INTEGER = re.compile(r"\b(\d{20})\d{30,}(\d{10})\b")


class Tally:
    """
    The calls of one function: `count` calls were compared, and some have `differences`.

    `skipped` is the reason why a call was not compared, the first if there are several; "" if all were
    compared.

    Args:
        function: The function in Python.
        compiled: The compiled function.
        converts: Whether the signature gives the type of the result, to which Python's is converted.
    """

    def __init__(self, function: FunctionType, compiled: CpuFunction, *, converts: bool) -> None:
        self.count, self.skipped = 0, ""
        self._compiled = compiled
        self._differences: dict[tuple[str, str, str], None] = {}
        self._python = python_side.without_compiler(function)
        self._parameters = [formal.type for formal in compiled.parameters.formals]
        self._rules = agreement.rules_of(
            compiled.types, [compiled.result, *self._parameters], converts=converts
        )

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """Arguments and both results of calls that differ, each once: corner values are drawn repeatedly."""
        return [*self._differences]

    def draw_arguments(self, seed: int) -> list[tuple[Any, ...]]:
        """Return arguments of several hundred calls."""
        return samples.draw_arguments(
            self._compiled.types, self._parameters, [seed, *self._compiled.name.encode()]
        )

    def call_all(self, calls: Iterable[tuple[Any, ...]]) -> None:
        """
        Call the function both ways with the arguments of each of *calls*.

        Raises:
            PtxlinkError: The compiled function cannot be called with these arguments.
        """
        for arguments in calls:
            try:
                self._add(self._to_c(arguments))
            except SkippedCallError as error:
                self.skip(error)

    def skip(self, error: PtxlinkError) -> None:
        """Record why a call is not compared."""
        self.skipped = self.skipped or str(error).rstrip(".")

    def _to_c(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return *arguments* as values of their C types; arrays as they are."""

        def convert(formal: Formal, value: Any, memory: HostArguments) -> Any:
            return values.to_c(self._compiled.types, formal.type, value, memory)

        return tuple(self._compiled.parameters.read(arguments, HostArguments(0), convert))

    def _add(self, arguments: tuple[Any, ...]) -> None:
        expected = self._call_python(arguments, python_numbers=True)
        actual = self._call(self._compiled, arguments)
        self.count += 1
        if not (self._agree(expected, actual) or self._agrees_with_numpy(arguments, actual)):
            self._differences[_as_text(arguments), _as_text(expected), _as_text(actual)] = None

    def _agrees_with_numpy(self, arguments: tuple[Any, ...], actual: Any) -> bool:
        try:
            return self._agree(self._call_python(arguments, python_numbers=False), actual)
        except SkippedCallError:
            return False

    def _call_python(self, arguments: tuple[Any, ...], *, python_numbers: bool) -> Any:
        def call(*copies: Any) -> Any:
            pairs = zip(self._parameters, copies, strict=True)
            types = self._compiled.types
            return self._python(
                *(
                    values.to_python(types, name, value, python_numbers=python_numbers)
                    for name, value in pairs
                )
            )

        return self._call(call, arguments)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return the result and the arrays after the call, each with its C type; or the exception."""
        copies = copy.deepcopy(arguments)
        try:
            result = function(*copies)
        except DeviceFaultError as error:
            return error
        except PtxlinkError:
            raise
        except Exception as error:  # noqa: BLE001 - the function may raise any
            return error
        return [(self._compiled.result, result), *self._arrays_in(self._parameters, copies)]

    def _agree(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, Exception) and isinstance(actual, DeviceFaultError):
            is_stop = any(map(actual.instruction.__contains__, _STOP_INSTRUCTIONS))
            return is_stop or isinstance(expected, LookupError)
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            return False
        return all(
            agreement.agrees(self._compiled.types, name, expected_value, actual_value, self._rules)
            for (name, expected_value), (_, actual_value) in zip(expected, actual, strict=True)
        )

    def _arrays_in(self, names: Iterable[str], values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Yield the arrays among values of the C types *names*, and in tuples, each with its type."""
        types = self._compiled.types
        for name, value in zip(names, values, strict=True):
            if types[name].kind in {"view", "pointer"} and arrays.is_numpy(value, "ndarray"):
                yield name, value
            elif isinstance(value, (tuple, Record)):
                yield from self._arrays_in([field.type for field in arrays.fields(types, name)], value)


def _as_text(outcome: Any) -> str:
    """Return arguments, or what a call returned, as a table shows them."""
    if isinstance(outcome, Exception):
        return type(outcome).__name__
    values_shown = outcome if isinstance(outcome, tuple) else [value for _, value in outcome]
    text = ", ".join(" ".join(str(value).split()) for value in values_shown)
    return _LONG_INTEGER.sub(r"\1...\2", text)
