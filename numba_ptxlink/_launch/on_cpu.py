"""Launch the kernels of an export on NumPy arrays, and call its functions, on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from numba_ptxlink._cpu import host
from numba_ptxlink._cpu.run import CpuProgram, byte_sizes
from numba_ptxlink.errors import LaunchError

from . import arrays, results, values
from .arrays import DeviceArray, DeviceArrayReader, Types, WrongArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cpu.checks import CpuChecks
    from numba_ptxlink._cpu.run import Region
    from numba_ptxlink._link.manifests import Function
    from numba_ptxlink._tools.launching import Configuration, Launchable


# Kinds of C types in manifests.
_INTEGER_KINDS = {"bool", "int", "uint"}
_NUMBER_KINDS = {*_INTEGER_KINDS, "float", "float16", "bfloat16", "complex"}


@dataclass
class HostArrayReader(DeviceArrayReader):
    """
    A reader of the NumPy arrays among the arguments of one launch or call on the CPU.

    Args:
        regions: The regions of memory of the arrays.
    """

    regions: list[Region] = field(default_factory=list)
    accepted_arrays: ClassVar[str] = "a NumPy array"

    def read(self, value: Any) -> DeviceArray | None:
        """Return the description of the NumPy array *value*; None if it is no array."""
        try:
            array = host.as_numpy(value)
        except ValueError as error:
            raise WrongArgumentError(f"it {error}") from error
        if array is None:
            return None
        self.regions.append(host.array_region(array, f"parameter {self.parameter!r}"))
        self.keep_alive.append(array)
        return DeviceArray(
            host.array_address(array),
            array.shape,
            array.strides,
            array.itemsize,
            array.dtype,
            not array.flags.writeable,
        )


class CompiledCode:
    """
    An export as a program of the CPU, on which all launches are synchronous.

    Args:
        ptx: The PTX.
        checks: The names of checks, True for memcheck, or False for none.
        steps: The maximum number of iterations of all loops of a thread; None for no limit.
    """

    reader_class = HostArrayReader
    """The class that reads the arrays among the arguments of a launch."""

    def __init__(self, ptx: bytes, *, checks: CpuChecks, steps: int | None) -> None:
        self.program, self.steps = CpuProgram.of(ptx, checks=checks), steps

    def handle(self, name: str) -> int:
        """Raise a LaunchError: only kernels that the driver has loaded have handles."""
        raise LaunchError(f"Kernel {name} has no handle on the CPU; load the export without device='cpu'.")

    def launch(
        self,
        kernel: Launchable,
        launch_config: Configuration,
        arguments: Sequence[bytes],
        reader: HostArrayReader,
    ) -> None:
        """Launch a kernel, and wait until it has ended."""
        self.program.launch(kernel.name, launch_config, arguments, reader.regions, self.steps)


class CpuFunction:
    """
    A function of an export, which is called on the CPU: `function(2.0, 0.5)`.

    Thread-safe.

    Args:
        code: The machine code of the export.
        function: The function, as the manifest describes it.
        types: The C types of its parameters and its result by name.
    """

    def __init__(self, code: CompiledCode, function: Function, types: Types) -> None:
        self.name = function.symbol
        self.declaration = function.declaration
        self.parameters = values.Parameters(f"Function {self.name}", function.parameters, types)
        self.result = function.result
        self.types = types
        self._code = code

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def __call__(self, *args: Any) -> Any:
        """
        Call the function.

        Args:
            args: The arguments, as `load` describes them. A number may be an array of numbers, and a struct
                an array of records: the function is then called for each element of the arrays, broadcast
                together.

        Returns:
            A Python value, or a NumPy value if Python has no type of its precision. If the function is called
            for each element of arrays, an array of the results, in which structs are records, and an Optional
            is a record of `value` and `has_value`.

        Raises:
            DeviceFaultError: The function faulted, as at an access out of bounds. The error names the
                instruction.
            LaunchError: An argument does not fit its parameter.
        """
        import numpy as np

        result_kind = self.types[self.result].kind
        if result_kind == "view":
            raise LaunchError(f"Function {self.name} returns an array; let it write to one that is passed.")
        program, reader = self._code.program, HostArrayReader(stream=0)
        callee = program.functions[self.name]
        # A column is an array of the arguments for one parameter, in all calls.
        c_columns = self.parameters.read(args, reader, self._to_column)
        ptx_sizes = byte_sizes(callee.params)
        columns = [
            self._widen(formal.type, column, size)
            for formal, column, size in zip(self.parameters.formals, c_columns, ptx_sizes, strict=True)
        ]
        try:
            shape = np.broadcast_shapes(*(column.shape for column in columns))
        except ValueError as error:
            raise LaunchError(
                f"Function {self.name}: {error}; pass shapes that NumPy broadcasts together."
            ) from error
        # Copy the columns: in an array that is broadcast, one element stands for several.
        inputs = [np.broadcast_to(column, shape).copy() for column in columns]
        call_count = math.prod(shape)
        outputs = np.zeros((call_count, sum(byte_sizes(callee.results))), "u1")
        program.call_elementwise(
            self.name,
            call_count,
            [(host.array_address(column), column.itemsize) for column in inputs],
            (host.array_address(outputs), outputs.shape[1]),
            reader.regions,
            self._code.steps,
        )
        if result_kind == "void":
            return None
        if not shape:
            return results.unpack(self.types, self.result, outputs.tobytes())
        dtype = results.dtype(self.types, self.result)
        # PTX returns a narrow integer in the lower bytes of a register: cut off the others.
        elements = np.ascontiguousarray(outputs[:, : dtype.itemsize]).view(dtype).reshape(shape)
        return results.numbers_of(self.types, self.result, elements)

    def _widen(self, ctype: str, column: Any, size: int) -> Any:
        """Return *column* as PTX passes it: integers with less than *size* bytes are extended to *size*."""
        kind = self.types[ctype].kind
        is_narrow = kind in _INTEGER_KINDS and column.itemsize < size
        return column.astype(f"{'i' if kind == 'int' else 'u'}{size}") if is_narrow else column

    def _to_column(self, formal: values.Formal, value: Any, reader: HostArrayReader) -> Any:
        """
        Return the argument *value* as an array with the dtype of its C type.

        If *value* is one argument, and no array of arguments for several calls, the array has no dimensions.
        """
        import numpy as np

        ctype = formal.type
        kind, dtype = self.types[ctype].kind, results.dtype(self.types, ctype)
        # An array without dimensions is one value.
        is_array = arrays.is_numpy(value, "ndarray") and value.shape
        has_records = is_array and kind in {"struct", "vector"} and value.dtype.names
        has_numbers = is_array and (kind in _NUMBER_KINDS or arrays.is_optional(self.types, ctype))
        if not (has_records or has_numbers):
            return np.frombuffer(formal.pack(value, reader), dtype).reshape(())
        value = host.as_numpy(value)
        if arrays.matches_type(self.types, ctype, value.dtype):
            return value
        # `pack` raises the error for a value that does not fit. Integers and floats are converted by NumPy,
        # which is faster; then only two are packed, for that check: the first one, which shows a wrong type,
        # and the first one that the conversion has changed, which shows a value that is too large.
        to_pack, converted = value.reshape(-1), None
        if dtype.kind in "iuf" and value.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                converted = to_pack.astype(dtype)
            is_changed = (
                np.isinf(converted) != np.isinf(to_pack) if dtype.kind == "f" else converted != to_pack
            )
            to_pack = [*to_pack[:1], *to_pack[is_changed][:1]]
        packed = b"".join([formal.pack(element, reader) for element in to_pack])
        return (np.frombuffer(packed, dtype) if converted is None else converted).reshape(value.shape)
