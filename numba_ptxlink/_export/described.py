"""
Describe values and functions as text that determines them.

A function is its code, and the values of the names that it and the functions that it calls read.
"""

from __future__ import annotations

import enum
import hashlib
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._front_end.describe import IndescribableError

from . import reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numba_ptxlink._front_end.protocol import FrontEnd

# What the versions in the environment of a key tell the code of.
DISTRIBUTIONS = tuple(dict.fromkeys((*FRONT_ENDS, "numba", "llvmlite", "numpy")))
_VERSIONED = sys.stdlib_module_names | {name.replace("-", "_") for name in (*DISTRIBUTIONS, "numba-ptxlink")}
# Of these modules no attribute is a constant, but what the compiler knows by its name.
_COMPILERS = _VERSIONED - sys.stdlib_module_names - {"numpy"}
PLAIN = (bool, int, float, complex, str, bytes)


class Description:
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
        return self._again(function) or self._function(function)

    def _function(self, function: Any) -> str:
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
        return group([*parts, *self._globals(function)])

    def _globals(self, function: Any) -> Iterator[str]:
        """Yield the values of the global names that *function* reads."""
        names = _names(function.__code__)
        builtins = function.__globals__.get("__builtins__", {})
        builtins = vars(builtins) if isinstance(builtins, ModuleType) else builtins
        for name in sorted(names):
            for scope in (function.__globals__, builtins):
                if name in scope:
                    yield f"{name}={self._read(scope[name], names)}"
                    break

    def value(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        """
        Return *value*, which a function reads, as text.

        Raises:
            IndescribableError: Text does not determine it.
        """
        kind = type(value)
        if value is None or value is Ellipsis or kind in PLAIN:
            # Of a number of thousands of digits, Python writes hexadecimal ones alone.
            return f"{kind.__name__} {hex(value) if kind is int else repr(value)}"
        if kind in (tuple, list):
            return group([kind.__name__, *map(self.value, value)])
        if kind in (frozenset, set):
            return group([kind.__name__, *sorted(map(self.value, value))])
        if kind is dict:
            return group([f"{self.value(name)}: {self.value(item)}" for name, item in value.items()])
        if kind is slice:
            return group(["slice", *map(self.value, (value.start, value.stop, value.step))])
        if kind is CodeType:
            return group(self._code(value))
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return group([self.value(kind), *map(self.value, value)])
        if isinstance(value, enum.Enum):
            return group([self.value(kind), value.name, self.value(value.value)])
        return self._object(value)

    def _object(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        import numpy as np

        if isinstance(value, np.dtype):
            return self._dtype(value)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return group(["scalar", self._dtype(value.dtype), value.tobytes().hex()])
        if type(value) is np.ndarray and not value.dtype.hasobject:
            layout = f"{value.shape} {value.strides} {value.flags.aligned} {value.flags.writeable}"
            content = hashlib.sha256(value.tobytes()).hexdigest()
            return group(["array", self._dtype(value.dtype), layout, content])
        if isinstance(value, ModuleType):
            raise IndescribableError(f"the module {value.__name__} as a value")
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, FunctionType):
            return self._home(value) if is_protected(value) else self.function(value)
        builtin: Any = value
        if isinstance(value, (BuiltinFunctionType, np.ufunc)):
            module = str(getattr(value, "__module__", ""))
            return group([type(builtin).__name__, module, builtin.__name__])
        if isinstance(value, reached.Marked):
            options = getattr(value, "options", None)
            return group(["marked", type(value).__name__, repr(options), self.function(value.function)])
        return self._of_front_end(value)

    def _of_front_end(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        """Describe what a front end has made: a type, a dispatcher or a declaration."""
        kind = type(value)
        again = self._again(value)
        if again:
            return again
        if not is_protected(kind):
            raise IndescribableError(f"a {kind.__module__}.{kind.__qualname__}")
        head = [kind.__module__, kind.__qualname__]
        function = reached.decorated(value)
        if function is not None:
            return group([*head, *self._options(value), self.function(function)])
        if any(base.__name__ == "Type" and is_protected(base) for base in kind.__mro__):
            own = getattr(value, "instance_class", None) or getattr(value, "instance_type", None)
            return group([*head, str(value), *([] if own is None else [self.value(own)])])
        if kind.__name__ == "_Intrinsic":
            # What else it knows is its identity, in this process.
            return group([*head, str(value._prefer_literal), self.function(value._defn)])  # noqa: SLF001
        if kind.__name__ == "ExternFunction":
            linkage = self.value(self._front_end.linkage(value))
            return group([*head, value.name, self.value(value.sig), linkage])
        if kind.__name__ in ("LinkableCode", "PTXSource", "CUSource", "LTOIR", "Fatbin", "Cubin"):
            return group([*head, *(f"{name}={self.value(part)}" for name, part in vars(value).items())])
        if hasattr(value, "__name__") and is_protected(value):
            return self._home(value)
        # A signature of types, as of a declaration.
        if kind.__name__ == "Signature" and hasattr(value, "return_type"):
            return group([*head, self.value(value.return_type), *map(self.value, value.args)])
        raise IndescribableError(f"a {kind.__module__}.{kind.__qualname__}")

    def _options(self, dispatcher: Any) -> Iterator[str]:
        """Yield what else than its function a dispatcher compiles by."""
        options = getattr(dispatcher, "targetoptions", None)
        if not isinstance(options, dict):
            raise IndescribableError(f"a {type(dispatcher).__qualname__} without options")
        # Compiled for some signatures alone, it converts its arguments to them.
        yield from [] if getattr(dispatcher, "_can_compile", True) else sorted(map(str, dispatcher.overloads))
        yield from (f"{name}={self.value(options[name])}" for name in sorted(options))

    def _class(self, value: type) -> str:
        if is_protected(value) or value.__module__ == "builtins":
            return self._home(value)
        head = ["class", value.__module__, value.__qualname__]
        if issubclass(value, enum.Enum):
            members = [f"{name}={self.value(item.value)}" for name, item in value.__members__.items()]
            return group([*head, *(base.__qualname__ for base in value.__mro__), *members])
        if issubclass(value, tuple) and hasattr(value, "_fields"):
            annotations = getattr(value, "__annotations__", {})
            return group(
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
        # Numba has a module that stands for another, once one of its own has imported it.
        head = f"module {vars(value).get('_RedirectSubpackage__new_module', value.__name__)}"
        members = [name for name in sorted(names) if name in vars(value)]
        if is_versioned(value.__name__):
            members = [name for name in members if _may_be_put(vars(value)[name], value)]
        elif "__getattr__" in vars(value):
            raise IndescribableError(f"the module {value.__name__}, which computes its attributes")
        if not members:
            return head
        # Two functions may read different names of it.
        again = self._again(value, tuple(members))
        if again:
            return again
        return group([head, *(f"{name}={self._read(vars(value)[name], names)}" for name in members)])

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
        return group([dtype.str, str(dtype), f"{dtype.itemsize} {dtype.alignment}", inner, *fields])

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


def _annotation(note: Any, described: Description) -> str:
    return note if isinstance(note, str) else described.value(note)


def _names(code: CodeType) -> set[str]:
    """Return the names that *code*, and the functions within it, read."""
    within = [_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)]
    return set(code.co_names).union(*within)


def is_versioned(module: str) -> bool:
    """Return whether the environment tells the version of *module*."""
    return module.partition(".")[0] in _VERSIONED


def _may_be_put(value: Any, module: ModuleType) -> bool:
    """Return whether *value*, which no version of *module* tells, may be compiled to something."""
    import numpy as np

    if module.__name__.partition(".")[0] in _COMPILERS:
        return False
    if isinstance(value, FunctionType) or reached.decorated(value) is not None:
        return not is_versioned(str(value.__module__))
    return type(value) is tuple or isinstance(value, (*PLAIN, ModuleType, np.generic, np.ndarray))


def is_protected(value: Any) -> bool:
    """Return whether *value* belongs to Python, NumPy or a front end, and can be found there by its name."""
    name = str(getattr(value, "__module__", ""))
    if not is_versioned(name):
        return False
    # What a decorator of theirs has made around a user's function is not theirs.
    found: Any = sys.modules.get(name)
    for part in str(getattr(value, "__qualname__", getattr(value, "__name__", ""))).split("."):
        found = getattr(found, part, None)
    return found is value


def group(parts: Iterable[str]) -> str:
    # Length-prefixed, so that the boundaries are unambiguous.
    return "(" + ",".join(f"{len(part)}:{part}" for part in parts) + ")"
