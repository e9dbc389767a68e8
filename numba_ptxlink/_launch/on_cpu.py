"""Run an export on the CPU: launch its kernels on NumPy arrays, and call its functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cpu import host
from numba_ptxlink._cpu.run import Program
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink.errors import LaunchError

from . import arrays, results, values
from .arrays import DeviceArray, Launch, RefusedError, Types
from .library import Library, LoadedKernel, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numba_ptxlink._cpu.run import Region
    from numba_ptxlink._link import manifests
    from numba_ptxlink._tools.launching import Configuration

_NUMBERS = {"bool", "int", "uint", "char", "float", "float16", "bfloat16", "complex"}


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
        self._checks = checks
        self._program: Program | None = None
        archs = [arch for kind, arch in self._artifacts if kind == PTX]
        if not archs:
            raise LaunchError(
                f"{manifest.path} lists no PTX, which the CPU runs; export with emit=ptx among the kinds "
                "(numba-ptxlink export --emit ptx)."
            )
        # All of them compute the same; the first is of the oldest architecture.
        self._arch = archs[0]
        self._kernels: dict[str, Any] = {}
        for function in manifest.functions:
            make = CpuKernel if function["kind"] == "kernel" else CpuFunction
            self._kernels[function["symbol"]] = make(self._compiled, function, manifest.types, steps)

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)

    __getattr__ = __getitem__

    def _compiled(self) -> Program:
        with self._lock.held:
            if self._program is None:
                self._program = Program.of(self.read(PTX, self._arch), checks=self._checks)
            return self._program


class _Memory:
    """The arrays of one launch or call: `launch`, which reads them, and their `regions`."""

    def __init__(self) -> None:
        self.launch = Launch(0, host=self._read)
        self.regions: list[Region] = []

    def _read(self, value: Any) -> DeviceArray | None:
        try:
            array = host.array(value)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if array is None:
            return None
        self.regions.append(host.region(array, self.launch.parameter))
        self.launch.kept.append(array)
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
        self,
        compiled: Callable[[], Program],
        function: Mapping[str, Any],
        types: Types,
        steps: int | None,
    ) -> None:
        super().__init__(_no_handle, function, types)
        self._compiled, self._steps = compiled, steps

    def _run(self, args: tuple[Any, ...], how: Configuration) -> None:
        memory = _Memory()
        buffer = self._pack(args, memory.launch)
        params = [bytes(buffer[place : place + size]) for _, _, place, size, _ in self._parameters]
        host.launch(self._compiled(), self.name, how, params, memory.regions, self._steps)


def _no_handle() -> int:
    raise LaunchError("A kernel on the CPU has no handle of the driver; load the export without device.")


class CpuFunction:
    """
    A function of an export, which is called on the CPU: `function(2.0, 0.5)`.

    Thread-safe.

    Args:
        compiled: Returns the machine code of the export.
        function: The function, as the manifest describes it.
        types: The C types of its parameters and its result by name.
        steps: How often a loop may go on in each thread; None for no limit.
    """

    def __init__(
        self,
        compiled: Callable[[], Program],
        function: Mapping[str, Any],
        types: Types,
        steps: int | None,
    ) -> None:
        self.name = str(function["symbol"])
        self.declaration = str(function["declaration"])
        self._compiled, self._steps = compiled, steps
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
        if len(args) != len(self.parameters):
            names = ", ".join(name for name, *_ in self.parameters)
            raise LaunchError(f"Function {self.name} takes ({names}), and was given {len(args)} arguments.")
        memory = _Memory()
        given: list[Any] = []
        for (name, ctype, layout), value in zip(self.parameters, args, strict=True):
            memory.launch.parameter = name
            with naming(f"Function {self.name}: parameter {name!r} is {ctype}", value):
                if self._is_array(ctype, value):
                    given.append(self._elements(ctype, layout, value, memory))
                else:
                    given.append(layout.pack(value, memory.launch))
        program = self._compiled()
        sizes = [size for size, _ in program.functions[self.name].params]
        if any(not isinstance(each, bytes) for each in given):
            return self._each(program, given, sizes, memory)
        params = [
            _widened(content, size, self.types[ctype]["kind"])
            for content, size, (_, ctype, _) in zip(given, sizes, self.parameters, strict=True)
        ]
        content = program.call(self.name, params, memory.regions, self._steps)
        with naming(f"Function {self.name}: its result is {self.result}", content):
            return results.unpack(self.types, self.result, content, memory.launch)

    def _is_array(self, ctype: str, value: Any) -> bool:
        """Return whether *value* is several values of the type *ctype*."""
        if not arrays.is_numpy(value, "ndarray") or not value.shape:
            return False
        kind = self.types[ctype]["kind"]
        is_record = kind in {"struct", "vector"} and value.dtype.names is not None
        return kind in _NUMBERS or is_record or results.is_optional(self.types, ctype)

    def _elements(self, ctype: str, layout: values.Layout, value: Any, memory: _Memory) -> Any:
        """Return *value* as an array of the type *ctype*, whose elements are what each of its own is."""
        import numpy as np

        value = host.array(value)
        if arrays.is_like(self.types, ctype, value.dtype):
            return value
        dtype = results.dtype(self.types, ctype)
        with np.errstate(all="ignore"):
            if dtype.kind in "iu" and value.dtype.kind in "iu" and value.size:
                limits = np.iinfo(dtype)
                if limits.min <= value.min() and value.max() <= limits.max:
                    return value.astype(dtype)
            elif dtype.kind in "fc" and value.dtype.kind in "iufc"[: 3 + (dtype.kind == "c")]:
                converted = value.astype(dtype)
                if (np.isfinite(converted) | ~np.isfinite(value)).all():
                    return converted
        # One after the other: the first that does not fit is refused as it would be alone.
        packed = b"".join([layout.pack(each, memory.launch) for each in value.reshape(-1)])
        return np.frombuffer(packed, dtype).reshape(value.shape)

    def _each(self, program: Program, given: list[Any], sizes: list[int], memory: _Memory) -> Any:
        """Return an array of what the function returns for each element of the arrays among *given*."""
        import numpy as np

        if self.types[self.result]["kind"] == "view":
            raise LaunchError(
                f"Function {self.name} returns an array; call it for one element after the other."
            )
        columns = []
        for content, size, (_, ctype, _) in zip(given, sizes, self.parameters, strict=True):
            kind = self.types[ctype]["kind"]
            if isinstance(content, bytes):
                columns.append(np.frombuffer(_widened(content, size, kind), f"V{size}")[0])
            elif content.itemsize < size:
                columns.append(content.astype(f"{'i' if kind == 'int' else 'u'}{size}"))
            else:
                columns.append(content)
        shapes = [each.shape for each in columns if each.shape]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise LaunchError(
                f"Function {self.name} was given arrays of the shapes {', '.join(map(str, shapes))}; pass "
                "shapes that NumPy broadcasts together."
            ) from error
        count = math.prod(shape)
        # Those that are not arrays are at one place for all.
        whole = [np.broadcast_to(each, shape) if each.shape else each for each in columns]
        flat = [np.require(each, requirements=["C", "A"]).reshape(-1) for each in whole]
        params = [
            (host.address(column), column.itemsize if each.shape else 0)
            for column, each in zip(flat, columns, strict=True)
        ]
        returned = program.functions[self.name].result
        made = np.zeros((count, returned[0] if returned else 0), "u1")
        program.call_many(
            self.name, count, params, (host.address(made), made.shape[1]), memory.regions, self._steps
        )
        if self.types[self.result]["kind"] == "void":
            return None
        dtype = results.dtype(self.types, self.result)
        # The lower bytes of a word are a narrow integer.
        elements = np.ascontiguousarray(made[:, : dtype.itemsize]).view(dtype).reshape(shape)
        return results.numbers_of(self.types, self.result, elements)


def _widened(content: bytes, size: int, kind: str) -> bytes:
    """Return the bytes of an argument as PTX has them, where integers are no narrower than 32 bits."""
    negative = kind == "int" and content[-1] >> 7
    return content.ljust(size, b"\xff" if negative else b"\0")
