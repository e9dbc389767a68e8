"""
Describe all that the lowering of a function depends on, so that its result can be used again.

Numba reads the code of the function and of the functions that it calls, and the values of the names that they
read, which become constants. All of these are described by content. What cannot be described leaves the
function without a key, and it is lowered again each time.

What Numba knows beside that, such as `@overload` of a module, belongs to the process. Where a module other
than those of the front end adds to it, all of the source that was imported counts.
"""

from __future__ import annotations

import enum
import hashlib
import os
import platform
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._front_end.describe import IndescribableError
from numba_ptxlink._imports import import_state, python_sources
from numba_ptxlink._native.modules import find_module

from . import reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._front_end.protocol import FrontEnd

    from .signatures import Typed

# The settings that no code depends on.
_UNRELATED = ("NUMBA_PTXLINK_CACHE", "NUMBA_PTXLINK_LOG", "NUMBA_CUDA_LOG", "NUMBA_CACHE_DIR")
# What the versions in `environment` tell the code of.
_DISTRIBUTIONS = tuple(dict.fromkeys((*FRONT_ENDS, "numba", "llvmlite", "numpy")))
_VERSIONED = sys.stdlib_module_names | {name.replace("-", "_") for name in (*_DISTRIBUTIONS, "numba-ptxlink")}
# What a machine has, and no code for a GPU depends on.
_OF_MACHINE = ("CPU", "NUM_THREADS", "_DIR", "PATH", "CACHE", "THREADING_LAYER", "JIT_PROFILING")
_PLAIN = (bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class FunctionKey:
    """
    What a function depends on.

    Args:
        code: A digest of all but line numbers; None where it cannot be told.
        lines: A digest of file names and line numbers.
        reason: Why there is no digest.
        environment: What all functions depend on.
        compiler: The front end, with its release.
    """

    code: str | None
    lines: str = ""
    reason: str = ""
    environment: tuple[str, ...] = ()
    compiler: str = ""


def environment(front_end: FrontEnd, modules: Iterable[str]) -> tuple[str, ...]:
    """
    Return what all functions depend on: versions, tools and settings, and what extends the front end.

    Args:
        front_end: What compiles them.
        modules: The names of the modules that define them.
    """
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith("NUMBA_") and not name.startswith(_UNRELATED) and not _is_of_machine(name)
    ]
    return (
        f"Python {platform.python_implementation()} {platform.python_version()}",
        f"numba-ptxlink {cache.package_version()}",
        *_installed(),
        *settings,
        *_configured(front_end),
        *_extended(front_end, modules),
    )


def _installed() -> Iterator[str]:
    """Yield the releases that the code can be of."""
    for name in _DISTRIBUTIONS:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            spec = find_module(name.replace("-", "_"))
            # Any folder of that name has a spec, but no file of its own.
            if spec is not None and spec.origin is not None:
                # Whatever its release is, it is not what another process has.
                yield f"{name} {os.urandom(16).hex()}"


def _configured(front_end: FrontEnd) -> Iterator[str]:
    """Yield the settings of the front end, which a program may change."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] == front_end.root and name.endswith(".core.config"):
            for setting, value in sorted(vars(module).items()):
                known = value is None or isinstance(value, _PLAIN)
                if setting.isupper() and known and not _is_of_machine(setting):
                    yield f"{name}.{setting}={value!r}"


def _is_of_machine(setting: str) -> bool:
    return any(part in setting for part in _OF_MACHINE)


def _extended(front_end: FrontEnd, modules: Iterable[str]) -> Iterator[str]:
    """Yield digests of the source of the program, where a part of it extends the front end."""
    extending = {name for name in front_end.extensions() if not _is_versioned(name)}
    if not extending:
        return
    if any(name.partition(".")[0] in import_state.PROTECTED for name in extending):
        # Such as a package below `cuda`, whose source is not looked for: this holds for one process.
        yield os.urandom(16).hex()
    for path in python_sources.of_modules({*modules, *extending}, {}):
        try:
            yield f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        except OSError:
            # Whatever it holds, it is not what another process has.
            yield f"{path.name} {os.urandom(16).hex()}"


def of_each(functions: Sequence[Typed], around: tuple[str, ...] | None = None) -> list[FunctionKey]:
    """
    Return what each of *functions*, which are of one front end, depends on.

    Args:
        functions: The functions.
        around: What all functions depend on, None to find out.
    """
    front_end = functions[0].front_end
    if around is None:
        around = environment(front_end, {str(each.udf.function.__module__) for each in functions})
    digest = _digest(around)
    compiler = f"{front_end.name} {metadata.version(front_end.name)}"
    keys = (_of(function, digest) for function in functions)
    return [replace(key, environment=around, compiler=compiler) if key.code else key for key in keys]


def _of(function: Typed, around: str) -> FunctionKey:
    """Return what *function* depends on, in the environment with the digest *around*."""
    described = _Description(function.front_end)
    udf = function.udf
    try:
        parts = [
            around,
            function.front_end.name,
            function.symbol,
            repr(udf.options),
            repr(udf.launch_bounds),
            "kernel" if udf.is_kernel else "udf",
            *function.labels,
            *(described.value(ty) for ty in (*function.args, function.result)),
            *(f"{name}={described.value(ty)}" for ty, name in sorted_records(function.records)),
            *(f"{existing!r}={described.value(ty)}" for ty, existing in function.structs.items()),
            f"const {sorted(function.const)}",
            f"restrict {sorted(function.restrict)}",
            described.function(udf.function),
        ]
    except IndescribableError as error:
        return FunctionKey(None, reason=str(error))
    except RecursionError:
        return FunctionKey(None, reason="values within values within values")
    return FunctionKey(_digest(parts), _digest(described.lines))


def sorted_records(records: Mapping[Any, str]) -> list[tuple[Any, str]]:
    """Return the record types and their names, in the order of the names."""
    return sorted(records.items(), key=lambda item: item[1])


def _digest(parts: Iterable[str]) -> str:
    encoded = (part.encode("utf-8", "surrogateescape") for part in parts)
    whole = b"".join(len(part).to_bytes(8, "little") + part for part in encoded)
    return hashlib.sha256(whole).hexdigest()


class _Description:
    """
    Values as text that determines them; a value that occurs again is named by its number.

    Attributes:
        lines: The file names and line numbers that belong to the text.
    """

    def __init__(self, front_end: FrontEnd) -> None:
        self.lines: list[str] = []
        self._front_end = front_end
        self._numbers: dict[tuple[int, tuple[str, ...]], int] = {}
        # An object that is collected would lend its identity to another.
        self._kept: list[Any] = []

    def function(self, function: Any) -> str:
        """Return the Python function *function*, with all that it reads, as text."""
        again = self._again(function)
        if again:
            return again
        code = function.__code__
        parts = ["function", function.__qualname__, str(function.__module__), *self._code(code)]
        parts += map(self.value, (function.__defaults__, function.__kwdefaults__))
        if function.__closure__ and len(function.__closure__) != len(code.co_freevars):
            raise IndescribableError(f"{function.__qualname__} with other cells than names")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                parts.append(f"{name}={self.value(cell.cell_contents)}")
            except ValueError:
                raise IndescribableError(f"{name} in {function.__qualname__}, which has no value") from None
        builtins = function.__globals__.get("__builtins__", {})
        builtins = vars(builtins) if isinstance(builtins, ModuleType) else builtins
        for name in sorted(_names(code)):
            for scope in (function.__globals__, builtins):
                if name in scope:
                    parts.append(f"{name}={self._read(scope[name], _names(code))}")
                    break
        return _group(parts)

    def value(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        """
        Return *value*, which a function reads, as text.

        Raises:
            IndescribableError: Text does not determine it.
        """
        kind = type(value)
        if value is None or value is Ellipsis or kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        if kind in (tuple, list):
            return _group([kind.__name__, *map(self.value, value)])
        if kind in (frozenset, set):
            return _group([kind.__name__, *sorted(map(self.value, value))])
        if kind is dict:
            return _group([f"{self.value(name)}: {self.value(item)}" for name, item in value.items()])
        if kind is slice:
            return _group(["slice", *map(self.value, (value.start, value.stop, value.step))])
        if kind is CodeType:
            return _group(self._code(value))
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return _group([self.value(kind), *map(self.value, value)])
        if isinstance(value, enum.Enum):
            return _group([self.value(kind), value.name, self.value(value.value)])
        return self._object(value)

    def _object(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        import numpy as np

        if isinstance(value, np.dtype):
            return self._dtype(value)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return _group(["scalar", self._dtype(value.dtype), value.tobytes().hex()])
        if type(value) is np.ndarray and not value.dtype.hasobject:
            layout = f"{value.shape} {value.strides} {value.flags.aligned} {value.flags.writeable}"
            content = hashlib.sha256(value.tobytes()).hexdigest()
            return _group(["array", self._dtype(value.dtype), layout, content])
        if isinstance(value, ModuleType):
            raise IndescribableError(f"the module {value.__name__} as a value")
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, FunctionType):
            return self._home(value) if _is_protected(value) else self.function(value)
        builtin: Any = value
        if isinstance(value, (BuiltinFunctionType, np.ufunc)):
            module = str(getattr(value, "__module__", ""))
            return _group([type(builtin).__name__, module, builtin.__name__])
        if isinstance(value, reached.Marked):
            options = getattr(value, "options", None)
            return _group(["marked", type(value).__name__, repr(options), self.function(value.function)])
        return self._of_front_end(value)

    def _of_front_end(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        """Describe what a front end has made: a type, a dispatcher or a declaration."""
        kind = type(value)
        if not _is_protected(kind):
            raise IndescribableError(f"a {kind.__module__}.{kind.__qualname__}")
        again = self._again(value)
        if again:
            return again
        head = [kind.__module__, kind.__qualname__]
        function = reached.decorated(value)
        if function is not None:
            options = getattr(value, "targetoptions", None)
            if not isinstance(options, dict):
                raise IndescribableError(f"a {kind.__qualname__} without options")
            # Compiled for some signatures alone, it converts its arguments to them.
            fixed = [] if getattr(value, "_can_compile", True) else sorted(map(str, value.overloads))
            described = [f"{name}={self.value(options[name])}" for name in sorted(options)]
            return _group([*head, *fixed, *described, self.function(function)])
        if any(base.__name__ == "Type" and _is_protected(base) for base in kind.__mro__):
            own = getattr(value, "instance_class", None) or getattr(value, "instance_type", None)
            return _group([*head, str(value), *([] if own is None else [self.value(own)])])
        if kind.__name__ == "ExternFunction":
            linkage = self.value(self._front_end.linkage(value))
            return _group([*head, value.name, self.value(value.sig), linkage])
        if kind.__name__ in ("LinkableCode", "PTXSource", "CUSource", "LTOIR", "Fatbin", "Cubin"):
            return _group([*head, *(f"{name}={self.value(part)}" for name, part in vars(value).items())])
        if hasattr(value, "__name__") and _is_protected(value):
            return self._home(value)
        # A signature of types, as of a declaration.
        if kind.__name__ == "Signature":
            return _group([*head, self.value(value.return_type), *map(self.value, value.args)])
        raise IndescribableError(f"a {kind.__module__}.{kind.__qualname__}")

    def _class(self, value: type) -> str:
        if _is_protected(value) or value.__module__ == "builtins":
            return self._home(value)
        head = ["class", value.__module__, value.__qualname__]
        if issubclass(value, enum.Enum):
            members = [f"{name}={self.value(item.value)}" for name, item in value.__members__.items()]
            return _group([*head, *(base.__qualname__ for base in value.__mro__), *members])
        if issubclass(value, tuple) and hasattr(value, "_fields"):
            annotations = getattr(value, "__annotations__", {})
            return _group(
                [
                    *head,
                    *value._fields,
                    self.value(dict(getattr(value, "_field_defaults", {}))),
                    *(f"{name}={_annotation(note, self)}" for name, note in annotations.items()),
                ]
            )
        raise IndescribableError(f"the class {value.__module__}.{value.__qualname__}")

    def _read(self, value: Any, names: Iterable[str]) -> str:
        """Describe what a global name stands for; of a module, what *names* can be in it."""
        if not isinstance(value, ModuleType):
            return self.value(value)
        if _is_versioned(value.__name__):
            return f"module {value.__name__}"
        if "__getattr__" in vars(value):
            raise IndescribableError(f"the module {value.__name__}, which computes its attributes")
        members = [name for name in sorted(names) if name in vars(value)]
        # Two functions may read different names of it.
        again = self._again(value, tuple(members))
        if again:
            return again
        return _group(
            [
                f"module {value.__name__}",
                *(f"{name}={self._read(vars(value)[name], names)}" for name in members),
            ]
        )

    def _home(self, value: Any) -> str:
        """Return the name of what belongs to Python, NumPy or a front end, whose versions are known."""
        return f"{value.__module__}.{getattr(value, '__qualname__', value.__name__)}"

    def _dtype(self, dtype: Any) -> str:
        fields = [
            f"{name} {at} {self._dtype(inner)}"
            for name, (inner, at, *_) in sorted((dtype.fields or {}).items())
        ]
        parts = dtype.subdtype
        inner = "" if parts is None else f"{self._dtype(parts[0])} {parts[1]}"
        return _group([dtype.str, str(dtype), f"{dtype.itemsize} {dtype.alignment}", inner, *fields])

    def _code(self, code: CodeType) -> list[str]:
        self.lines += [code.co_filename, str([*code.co_lines()])]
        numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        table = getattr(code, "co_exceptiontable", b"")
        parts = [code.co_name, repr(numbers), repr(names), code.co_code.hex(), table.hex()]
        # The name of the file is a part of Numba's messages, and of the lines where it raises.
        return [*parts, *map(self.value, code.co_consts)]

    def _again(self, value: Any, part: tuple[str, ...] = ()) -> str:
        """Return how *value*, or a *part* of it, is named if it was described before, else ""."""
        number = self._numbers.get((id(value), part))
        if number is not None:
            return f"number {number}"
        self._numbers[id(value), part] = len(self._numbers)
        self._kept.append(value)
        return ""


def _annotation(note: Any, described: _Description) -> str:
    return note if isinstance(note, str) else described.value(note)


def _names(code: CodeType) -> set[str]:
    """Return the names that *code*, and the functions within it, read."""
    within = [_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)]
    return set(code.co_names).union(*within)


def _is_versioned(module: str) -> bool:
    """Return whether the environment tells the version of *module*."""
    return module.partition(".")[0] in _VERSIONED


def _is_protected(value: Any) -> bool:
    """Return whether *value* belongs to Python, NumPy or a front end, and can be found there by its name."""
    name = str(getattr(value, "__module__", ""))
    if not _is_versioned(name):
        return False
    # What a decorator of theirs has made around a user's function is not theirs.
    found: Any = sys.modules.get(name)
    for part in str(getattr(value, "__qualname__", getattr(value, "__name__", ""))).split("."):
        found = getattr(found, part, None)
    return found is value


def _group(parts: Iterable[str]) -> str:
    # Length-prefixed, so that the boundaries are unambiguous.
    return "(" + ",".join(f"{len(part)}:{part}" for part in parts) + ")"
