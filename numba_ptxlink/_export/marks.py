"""Mark Python functions for export: `udf` for device functions, `kernel` for kernels."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from numba_ptxlink._cabi.options import DECORATOR_OPTIONS, AbiOptions, CxxOptions, checked_launch_bounds
from numba_ptxlink._front_end import registry
from numba_ptxlink.errors import AbiError, ExportError

from . import choice
from .choice import Marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import FrameType

    from typing_extensions import Unpack

    from numba_ptxlink._cabi.options import OnError
    from numba_ptxlink._config import FrontEndName
    from numba_ptxlink._front_end.base import FrontEnd

log = logging.getLogger(__name__)

__all__ = ["Kernel", "Udf", "kernel", "udf"]

T = TypeVar("T", bound="Udf")

# Code flags of functions that C cannot call.
_NOT_IN_C = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


class Udf(Marked):
    """
    A Python function with a C signature. Calling it calls the Python function.

    Numba device functions may call it too.

    Args:
        function: The Python function; or a function that is marked already, which gets another signature.
        signature: The Numba signature.
        abi_options: The C name, and the other options that `abi_info` of `cuda.compile` has as well.
        front_end: The name of the front end; None to choose it by the types and functions that are used.
        launch_bounds: The launch bounds of a kernel; None for none.
        cxx: The decorator's options for C++, which `CxxOptions.of` reads.
    """

    is_kernel = False

    def __init__(
        self,
        function: Any,
        signature: Any,
        abi_options: AbiOptions,
        front_end: str | None = None,
        launch_bounds: int | tuple[int, ...] | None = None,
        **cxx: Any,
    ) -> None:
        # The dispatcher (Numba's compiled function) of each front end that has used this function, by name.
        self._dispatchers: dict[str, Any] = {}
        # Attributes that are set on this object, so that a front end compiles its calls as the dispatcher's.
        self._call_attributes: dict[str, Any] = {}
        self.earlier_marks = ()
        if isinstance(function, Udf):
            self.earlier_marks = (*function.earlier_marks, function)
        python_function = choice.wrapped_function(function)
        if python_function is not None:
            ignored_options = _ignored_options(function)
            function = python_function
            if ignored_options:
                log.warning(
                    "%s has %s of Numba's decorator, which an export ignores; pass launch_bounds to @kernel, "
                    "and the others to the export or the link",
                    function.__name__,
                    ignored_options,
                )
        if not inspect.isfunction(function):
            decorator = type(self).__name__.lower()
            raise ExportError(
                f"{decorator}() decorates Python functions, not {type(function).__name__}: {function!r}; "
                f"decorate a function, and write @staticmethod above @{decorator}."
            )
        if front_end is not None:
            registry.get(front_end)
        self.requested_front_end = front_end
        self.function = function
        code = function.__code__
        if code.co_kwonlyargcount or code.co_flags & _NOT_IN_C:
            raise AbiError(
                f"Function {function.__qualname__} ({self.source}) cannot be called from C, which has no "
                "`*args`, `**kwargs` or keyword-only parameters, no generators (`yield`) and no `async def`; "
                "give it positional parameters, and let it return or write its results."
            )
        self.signature = signature
        self.signature_scope = choice.values_of_names(signature, function)
        self.abi_options = abi_options
        self.launch_bounds = checked_launch_bounds(launch_bounds, f"kernel {function.__qualname__}")
        title = f"Function {function.__qualname__} ({self.source})"
        self.cxx = CxxOptions.of(title, parameters(function), **cxx)
        # Whether functions of other parameter types may have the same name in C++. If so, the symbol contains
        # the types, which are resolved later.
        self.is_overloadable = (
            bool(self.cxx.namespace) and not self.is_kernel and abi_options.abi_name is None
        )
        self.name = function.__name__ if abi_options.abi_name is None else abi_options.abi_name
        choice.record_mark(self)
        # The function's attributes are not copied, since they could replace those of this object.
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the Python function."""
        return self.function(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """
        Return the qualified name, by which `pickle` and `copy` refer to functions.

        cloudpickle stores the content instead: a worker of Dask has no `__main__` with the function.
        """
        caller: str = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - `pickle` passes no argument that names the caller
        if "cloudpickle" in caller.split("."):
            return super().__reduce_ex__(protocol)
        return self.function.__qualname__

    def __getstate__(self) -> dict[str, Any]:
        """
        Return the attributes without those that compilers have added, for cloudpickle.

        Numba finds a kernel on disk by the pickled closure of its Python function. If the closure has this
        object, the state has to be equal in all processes.
        """
        state = {name: value for name, value in vars(self).items() if name not in self._call_attributes}
        return {**state, "_dispatchers": {}, "_call_attributes": {}}

    @property
    def _dispatcher(self) -> Any:
        """The dispatcher for the front end that compiles a call of this function, else for `front_end`."""
        if self.earlier_marks and type(self) is Udf and type(self.earlier_marks[0]) is Udf:
            # Numba recognises recursion by the dispatcher, so all signatures of a function share one. A
            # kernel has its own, since functions cannot call it.
            return self.earlier_marks[0]._dispatcher  # noqa: SLF001 - of this class
        callers_front_end = _compiling_front_end()
        if callers_front_end is not None and self.requested_front_end not in (None, callers_front_end.name):
            raise ExportError(
                f"{self.name} ({self.source}) is to be compiled by {self.requested_front_end}, and "
                f"{callers_front_end.name} compiles a function that calls it; choose one front end for both, "
                "or mark the Python function separately for each, without stacking the decorators."
            )
        front_end = callers_front_end or self.front_end
        if front_end.name not in self._dispatchers:
            self._dispatchers[front_end.name] = front_end.dispatcher(
                self.function, launch_bounds=self.launch_bounds, device=not self.is_kernel
            )
        return self._dispatchers[front_end.name]

    @property
    def front_end(self) -> FrontEnd:
        """
        The front end of the function, unless an export or a caller chooses one.

        Raises:
            ExportError: The function uses several front ends, or its front end is not installed.
        """
        return registry.require(choice.choose_front_end(self))

    @property
    def _numba_type_(self) -> Any:
        # Numba reads the type of a global from this attribute, so that other functions can call this one.
        dispatcher = self._dispatcher
        self._call_attributes |= (_compiling_front_end() or self.front_end).call_attributes(dispatcher)
        self.__dict__.update(self._call_attributes)
        return dispatcher._numba_type_


class Kernel(Udf):
    """
    A Python function that becomes a `__global__` function.

    `kernel[blocks, threads](...)` launches it with Numba.
    """

    is_kernel = True

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Raise ExportError: a kernel can only be launched."""
        raise ExportError(f"{self.name} is a kernel; launch it as {self.name}[blocks, threads](...).")

    def __getitem__(self, configuration: Any) -> Any:
        """Return the kernel configured for a launch by Numba."""
        return self._dispatcher[configuration]


def _compiling_front_end() -> FrontEnd | None:
    """Return the front end whose code reads an attribute of a marked function; None for other code."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as `warnings` finds its caller
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return None if frame is None else registry.of_module(frame.f_globals.get("__name__", ""))


class MarkOptions(TypedDict, total=False):
    """The options of `udf` and `kernel`."""

    name: str | None
    on_error: OnError
    checked: bool
    namespace: str | None
    structs: Mapping[Any, str] | None
    include: str | Iterable[str]
    const: str | Iterable[str]
    restrict: str | Iterable[str]
    front_end: FrontEndName | None


def udf(signature: Any = None, **options: Unpack[MarkOptions]) -> Callable[[Any], Udf]:
    """
    Mark a Python function for export with the C ABI. Calling it still calls the Python function.

    Decorate a function twice, with two names, to export it for two signatures.

    Args:
        signature: The Numba signature, such as "float32(float32, Particle)", or a tuple of argument types,
            for which Numba infers the return type. Names may refer to types, dtypes, named tuples and
            enums in the function's module.
        name: The C symbol; the function's `__name__` by default.
        on_error: The effect of an error: "zero" returns a zero-initialised value, "trap" stops the kernel.
        checked: Whether a division by zero and an index out of range are errors, in the function and in its
            callees; only numba-cuda has the option. Without it, errors are `raise`, `assert` and the checks
            that Numba always makes.
        namespace: A namespace of C++, such as "physics", in which the function has its Python name, with an
            overload for each signature. Unless *name* is passed, the symbol consists of namespace, name and
            types.
        structs: Structs that C++ defines for dtypes and named tuples, such as {particle: "ns::Particle"}; the
            header includes their definitions and asserts that their layouts match.
        include: The headers that define these structs, as the generated header includes them: "particle.h",
            or "<particle.h>".
        const: The names of pointers and arrays through which the function only reads: `const T*` in C++.
            The package does not check it: a function that writes through one is like a `const_cast` in C++.
        restrict: The names of pointers to memory that no other pointer refers to while the function runs:
            `__restrict__` in C++. The caller promises it; the package does not check it.
        front_end: The compiler: "numba-cuda" or "numba-cuda-mlir". By default the one whose types, functions
            and modules the function uses; otherwise an installed one, numba-cuda first.

    Raises:
        AbiError: An option is unknown, or C cannot call the function: it has `*args`, `**kwargs` or
            keyword-only parameters, or is a generator or asynchronous.
        ConfigError: *front_end* is unknown.
        ExportError: There is no signature, or the decorated object is not a Python function.
    """
    return _mark(Udf, signature, None, **options)


def kernel(
    signature: Any = None,
    *,
    launch_bounds: int | tuple[int, ...] | None = None,
    **options: Unpack[MarkOptions],
) -> Callable[[Any], Kernel]:
    """
    Mark a Python function for export as a kernel: `extern "C" __global__ void name(...)`.

    Args:
        signature: The Numba signature, such as "void(float32[::1], float32)", or a tuple of argument types.
        name: The C symbol; the function's `__name__` by default.
        on_error: The effect of an error: "zero" ends the thread in which it occurs, "trap" stops the kernel.
        checked: Whether a division by zero and an index out of range are errors, in the kernel and in its
            callees; only numba-cuda has the option. Without it, errors are `raise`, `assert` and the checks
            that Numba always makes.
        launch_bounds: The maximum number of threads in a block, 1 to 1024; or a tuple of that, the minimum
            number of blocks per multiprocessor, 1 to 32, and the maximum number of blocks in a cluster, which
            takes effect from sm_90 on.
        namespace: A namespace of C++ in which `using ::name;` declares the `extern "C"` kernel as well.
        structs: Structs that C++ defines for dtypes and named tuples, as for `udf`.
        include: The headers that define these structs.
        const: The names of pointers and arrays through which the kernel only reads, as for `udf`.
        restrict: The names of pointers to memory that no other pointer refers to, as for `udf`.
        front_end: The compiler: "numba-cuda" or "numba-cuda-mlir", as for `udf`.

    Raises:
        AbiError: An option is unknown, a launch bound is out of range, or C cannot call the function: it has
            `*args`, `**kwargs` or keyword-only parameters, or is a generator or asynchronous.
        ConfigError: *front_end* is unknown.
        ExportError: There is no signature, or the decorated object is not a Python function.
    """
    return _mark(Kernel, signature, launch_bounds, **options)


def _mark(
    cls: type[T],
    signature: Any,
    launch_bounds: int | tuple[int, ...] | None,
    *,
    name: str | None = None,
    **options: Any,
) -> Callable[[Any], T]:
    """Return the decorator that makes a function an object of *cls*, which is `Udf` or `Kernel`."""
    decorator = cls.__name__.lower()
    unknown_options = [option for option in options if option not in MarkOptions.__annotations__]
    if unknown_options:
        known_options = [*MarkOptions.__annotations__]
        if cls.is_kernel:
            known_options.append("launch_bounds")
        raise AbiError(
            f"{decorator}() has no option {', '.join(unknown_options)}; it has {', '.join(known_options)}."
        )
    # `@udf` without parentheses passes the function as the signature. Numba's signatures can be called, too,
    # and have a `return_type`.
    if signature is None or (callable(signature) and not hasattr(signature, "return_type")):
        example = "void(float32[::1])" if cls.is_kernel else "float32(float32)"
        raise ExportError(f'{decorator}() needs a signature: write @{decorator}("{example}").')
    abi_entries = {option: options.pop(option) for option in DECORATOR_OPTIONS if option in options}
    if name is not None:
        abi_entries["abi_name"] = name
    abi_options = AbiOptions.of(abi_entries)
    return lambda function: cls(function, signature, abi_options, launch_bounds=launch_bounds, **options)


def _ignored_options(dispatcher: Any) -> str:
    """Return the options of Numba's decorator that change code and that exports ignore: "fastmath=True"."""
    target_options = getattr(dispatcher, "targetoptions", {})
    names = ("fastmath", "launch_bounds", "max_registers", "link")
    return ", ".join(f"{name}={target_options[name]!r}" for name in names if target_options.get(name))


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of *function*."""
    return list(inspect.signature(function, follow_wrapped=False).parameters)
