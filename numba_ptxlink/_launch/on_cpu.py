"""Run an export on the CPU: launch its kernels on NumPy arrays, and call its functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from numba_ptxlink._cpu import host
from numba_ptxlink._cpu.run import Program
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink.errors import LaunchError

from . import arrays, results, values
from .arrays import DeviceArray, Launch, RefusedError, Types
from .library import Library, LoadedKernel, naming

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numba_ptxlink._cpu.run import Region
    from numba_ptxlink._link import manifests
    from numba_ptxlink._tools.launching import Configuration

_INTEGERS = {"bool", "int", "uint"}
_NUMBERS = {*_INTEGERS, "float", "float16", "bfloat16", "complex"}


class CpuLibrary(Library):
    """
    The kernels and functions of an export by name, on the CPU.

    Thread-safe.

    Args:
        manifest: What the export says of itself.
        files: Its files: their contents by name, or their folder.
        checks: Whether accesses to memory are checked.
        steps: How often a loop may go on in each thread; None for no limit.

    Raises:
        LaunchError: The export has no PTX.
    """

    _holds = "a kernel or a function"

    def __init__(
        self,
        manifest: manifests.Manifest,
        files: Mapping[str, bytes] | Path,
        *,
        checks: bool,
        steps: int | None,
    ) -> None:
        super().__init__(manifest, files)
        # All of them compute the same; the first is of the oldest architecture.
        arch = next((arch for kind, arch in self._artifacts if kind == PTX), None)
        program = Program.of(self.read(PTX, arch), checks=checks)
        made: dict[str, Any] = {
            function["symbol"]: (CpuKernel if function["kind"] == "kernel" else CpuFunction)(
                program, function, manifest.types, steps
            )
            for function in manifest.functions
        }
        self._kernels = made


@dataclass
class Memory(Launch):
    """
    What reading the arguments of one launch or call on the CPU needs and leaves.

    Args:
        regions: The memory of the arrays among them.
    """

    regions: list[Region] = field(default_factory=list)
    takes: ClassVar[str] = "a NumPy array"

    def read(self, value: Any) -> DeviceArray | None:
        """Return the array *value*, None where it is none."""
        try:
            array = host.array(value)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if array is None:
            return None
        self.regions.append(host.region(array, self.parameter))
        self.kept.append(array)
        dtype = array.dtype if array.dtype.names or array.dtype.subdtype else array.dtype.str
        return DeviceArray(
            host.address(array),
            array.shape,
            array.strides,
            array.itemsize,
            dtype,
            not array.flags.writeable,
        )


class CpuKernel(LoadedKernel):
    """A kernel of an export on the CPU, where a launch has ended when it returns."""

    def __init__(
        self, program: Program, function: Mapping[str, Any], types: Types, steps: int | None
    ) -> None:
        super().__init__(_no_handle, function, types)
        self._program, self._steps = program, steps

    def _run(self, args: tuple[Any, ...], how: Configuration) -> None:
        memory = Memory(how.stream)
        buffer = self._pack(args, memory)
        params = [bytes(buffer[place : place + size]) for _, _, place, size, _ in self._parameters]
        host.launch(self._program, self.name, how, params, memory.regions, self._steps)


def _no_handle() -> int:
    raise LaunchError("A kernel on the CPU has no handle of the driver; load the export without device.")


class CpuFunction:
    """
    A function of an export, which is called on the CPU: `function(2.0, 0.5)`.

    Thread-safe.

    Args:
        program: The machine code of the export.
        function: The function, as the manifest describes it.
        types: The C types of its parameters and its result by name.
        steps: How often a loop may go on in each call; None for no limit.
    """

    def __init__(
        self, program: Program, function: Mapping[str, Any], types: Types, steps: int | None
    ) -> None:
        self.name = str(function["symbol"])
        self.declaration = str(function["declaration"])
        self._program, self._steps = program, steps
        self.types = types
        self.result = str(function["result"])
        self.parameters = [
            (str(each["name"]), str(each["type"]), values.layout(types, each["type"]))
            for each in function["parameters"]
        ]

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def __call__(self, *args: Any) -> Any:
        """
        Call the function.

        Args:
            args: What `load` says that a kernel takes. A number may be an array of numbers, and a struct an
                array of records: then the function is called for each element of all that are broadcast
                together.

        Returns:
            A value of Python, or of NumPy where Python has none of its precision. An array of them where an
            argument is one: structs are records, and an Optional is a record of `value` and `has_value`.

        Raises:
            DeviceFaultError: The function did something that stops it. Names the place.
            LaunchError: An argument is not what its parameter takes.
        """
        import numpy as np

        if len(args) != len(self.parameters):
            names = ", ".join(name for name, *_ in self.parameters)
            raise LaunchError(f"Function {self.name} takes ({names}), and was given {len(args)} arguments.")
        result = self.types[self.result]["kind"]
        if result == "view":
            raise LaunchError(f"Function {self.name} returns an array; let it write to one that is passed.")
        callee, memory = self._program.functions[self.name], Memory(0)
        columns: list[Any] = []
        for (name, ctype, layout), value, (size, _) in zip(self.parameters, args, callee.params, strict=True):
            memory.parameter = name
            with naming(f"Function {self.name}: parameter {name!r} is {ctype}", value):
                column = self._column(ctype, layout, value, memory)
            kind = self.types[ctype]["kind"]
            # In PTX no integer is narrower than 32 bits.
            is_narrow = kind in _INTEGERS and column.itemsize < size
            columns.append(column.astype(f"{'i' if kind == 'int' else 'u'}{size}") if is_narrow else column)
        try:
            shape = np.broadcast_shapes(*(each.shape for each in columns))
        except ValueError as error:
            raise LaunchError(
                f"Function {self.name}: {error}; pass shapes that NumPy broadcasts together."
            ) from error
        whole = [np.broadcast_to(each, shape).copy() for each in columns]
        count = math.prod(shape)
        made = np.zeros((count, callee.result[0] if callee.result else 0), "u1")
        self._program.call_many(
            self.name,
            count,
            [(host.address(each), each.itemsize) for each in whole],
            (host.address(made), made.shape[1]),
            memory.regions,
            self._steps,
        )
        if result == "void":
            return None
        if not shape:
            return results.unpack(self.types, self.result, made.tobytes())
        dtype = results.dtype(self.types, self.result)
        # The lower bytes of a word are a narrow integer.
        elements = np.ascontiguousarray(made[:, : dtype.itemsize]).view(dtype).reshape(shape)
        return results.numbers_of(self.types, self.result, elements)

    def _column(self, ctype: str, layout: values.Layout, value: Any, memory: Memory) -> Any:
        """Return *value* as an array of the type *ctype*, without dimensions where it is one value."""
        import numpy as np

        kind, dtype = self.types[ctype]["kind"], results.dtype(self.types, ctype)
        is_array = arrays.is_numpy(value, "ndarray") and value.shape
        is_record = is_array and kind in {"struct", "vector"} and value.dtype.names
        if not (is_record or (is_array and (kind in _NUMBERS or arrays.is_optional(self.types, ctype)))):
            return np.frombuffer(layout.pack(value, memory), dtype).reshape(())
        value = host.array(value)
        if arrays.is_like(self.types, ctype, value.dtype):
            return value
        # What does not fit is refused as it would be alone. Numbers are converted together: the type of the
        # first is that of all, and what is lost is found by comparison.
        checked, converted = value.reshape(-1), None
        if dtype.kind in "iuf" and value.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                converted = checked.astype(dtype)
            lost = np.isinf(converted) != np.isinf(checked) if dtype.kind == "f" else converted != checked
            checked = [*checked[:1], *checked[lost][:1]]
        packed = b"".join([layout.pack(each, memory) for each in checked])
        return (np.frombuffer(packed, dtype) if converted is None else converted).reshape(value.shape)
