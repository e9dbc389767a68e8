"""Call a Python function and its compiled form with equal arguments, and record the calls that differ."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._launch import arrays
from numba_ptxlink._launch.on_cpu import HostArrayReader
from numba_ptxlink._launch.results import Record
from numba_ptxlink.errors import DeviceFaultError, PtxlinkError

from . import agreement, python_side, samples, values
from .values import SkippedCallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

    from numba_ptxlink._launch.on_cpu import CpuFunction
    from numba_ptxlink._launch.values import Formal

# In compiled code, an exception becomes the instruction `trap` or a call of `__assertfail`.
_RAISING_INSTRUCTIONS = ("trap", "__assertfail")
# Integers of 60 digits or more: a report shows the first 20 and the last 10.
_LONG_INTEGER = re.compile(r"\b(\d{20})\d{30,}(\d{10})\b")


class Tally:
    """
    The calls of one function: `count` of them were compared, and `differences` lists those that differ.

    `skip_reason` is the reason why the first of the skipped calls was not compared; "" if none was skipped.

    Args:
        function: The Python function.
        compiled: The compiled function.
        converts: Whether the signature declares the type of the result, so that the result of the Python
            function is converted to this type.
    """

    def __init__(self, function: FunctionType, compiled: CpuFunction, *, converts: bool) -> None:
        self.count = 0
        self.skip_reason = ""
        self._compiled = compiled
        self._differences: dict[tuple[str, str, str], None] = {}
        self._python = python_side.without_compiler(function)
        self._parameter_types = [formal.type for formal in compiled.parameters.formals]
        self._rules = agreement.rules_of(
            compiled.types, [compiled.result, *self._parameter_types], converts=converts
        )

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """
        The arguments, Python's result and the compiled function's result of calls that differ, as texts.

        Calls with the same texts are listed once, since the same corner values are drawn for several calls.
        """
        return [*self._differences]

    def draw_arguments(self, seed: int) -> list[tuple[Any, ...]]:
        """Return the arguments of several hundred calls, which depend on *seed* and the function's name."""
        return samples.draw_arguments(
            self._compiled.types, self._parameter_types, [seed, *self._compiled.name.encode()]
        )

    def call_all(self, calls: Iterable[tuple[Any, ...]]) -> None:
        """
        Call and compare both functions with each tuple of arguments in *calls*.

        Raises:
            PtxlinkError: The compiled function cannot be called with these arguments.
        """
        for arguments in calls:
            try:
                self._compare(self._to_c(arguments))
            except SkippedCallError as error:
                self.skip(error)

    def skip(self, error: PtxlinkError) -> None:
        """Record why a call is not compared."""
        self.skip_reason = self.skip_reason or str(error).rstrip(".")

    def _to_c(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return *arguments* as values of their C types; arrays as they are."""

        def convert(formal: Formal, value: Any, reader: HostArrayReader) -> Any:
            return values.to_c(self._compiled.types, formal.type, value, reader)

        reader = HostArrayReader(stream=0)  # NumPy arrays belong to no stream: the number is not used.
        return tuple(self._compiled.parameters.read(arguments, reader, convert))

    def _compare(self, arguments: tuple[Any, ...]) -> None:
        """Call both functions with *arguments*, and record a difference."""
        # Compiled code may compute as Python does with its own numbers, or with NumPy's: a call whose result
        # equals neither is a difference.
        expected = self._call_python(arguments, python_numbers=True)
        actual = self._call(self._compiled, arguments)
        self.count += 1
        if not (self._outcomes_agree(expected, actual) or self._agrees_with_numpy(arguments, actual)):
            self._differences[_as_text(arguments), _as_text(expected), _as_text(actual)] = None

    def _agrees_with_numpy(self, arguments: tuple[Any, ...], actual: Any) -> bool:
        """Return whether *actual* is Python's result for NumPy numbers in place of int, float and complex."""
        try:
            return self._outcomes_agree(self._call_python(arguments, python_numbers=False), actual)
        except SkippedCallError:
            return False

    def _call_python(self, arguments: tuple[Any, ...], *, python_numbers: bool) -> Any:
        """
        Return the outcome of the Python function, as `_call` does.

        Args:
            arguments: The arguments of compiled code.
            python_numbers: Whether to pass numbers as int, float and complex, rather than NumPy's.
        """

        def call(*copies: Any) -> Any:
            pairs = zip(self._parameter_types, copies, strict=True)
            types = self._compiled.types
            return self._python(
                *(
                    values.to_python(types, name, value, python_numbers=python_numbers)
                    for name, value in pairs
                )
            )

        return self._call(call, arguments)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """
        Return the outcome of a call with copies of *arguments*.

        The outcome is the exception that the call raised; or a list of pairs of a C type and a value: the
        result, and the arrays as the call leaves them.
        """
        copies = copy.deepcopy(arguments)
        try:
            result = function(*copies)
        except DeviceFaultError as error:
            return error
        except PtxlinkError:
            raise
        except Exception as error:  # noqa: BLE001 - the function may raise any exception
            return error
        return [(self._compiled.result, result), *self._arrays_in(self._parameter_types, copies)]

    def _outcomes_agree(self, expected: Any, actual: Any) -> bool:
        """Return whether the outcome in Python equals that of the compiled function; both are of `_call`."""
        if isinstance(expected, Exception) and isinstance(actual, DeviceFaultError):
            is_raised = any(name in actual.instruction for name in _RAISING_INSTRUCTIONS)
            # Without checks of indices, compiled code accesses memory outside of the array: Python raises
            # IndexError there.
            return is_raised or isinstance(expected, LookupError)
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            return False
        return all(
            agreement.agrees(self._compiled.types, name, expected_value, actual_value, self._rules)
            for (name, expected_value), (_, actual_value) in zip(expected, actual, strict=True)
        )

    def _arrays_in(self, type_names: Iterable[str], arguments: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Yield the arrays in *arguments*, and in tuples among them, each with the name of its C type."""
        types = self._compiled.types
        for name, value in zip(type_names, arguments, strict=True):
            if types[name].kind in {"view", "pointer"} and arrays.is_numpy(value, "ndarray"):
                yield name, value
            elif isinstance(value, (tuple, Record)):
                yield from self._arrays_in(
                    [field.type for field in arrays.describe_members(types, name)], value
                )


def _as_text(outcome: Any) -> str:
    """Return the text of the arguments or the outcome of a call, without line breaks and long integers."""
    if isinstance(outcome, Exception):
        return type(outcome).__name__
    # Arguments are a tuple; an outcome is a list of pairs.
    outcome_values = outcome if isinstance(outcome, tuple) else [value for _, value in outcome]
    text = ", ".join(" ".join(str(value).split()) for value in outcome_values)
    return _LONG_INTEGER.sub(r"\1...\2", text)
