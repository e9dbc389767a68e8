"""
What numba-cuda's front end works out again for every call in a kernel, worked out once.

A cold kernel spends a third of its time there, and one out of the cache nearly all of it. What a replacement
returns is what numba-cuda would have returned.
"""

from __future__ import annotations

import functools
from typing import Any

_SIGNATURES = 4096
"""How many types of calls are remembered."""


def _wrap_values(original: Any) -> Any:
    defaults: dict[type, dict[str, Any]] = {}

    @functools.wraps(original)
    def values(self: Any) -> dict[str, Any]:
        known = defaults.get(type(self))
        if known is None:
            known = defaults[type(self)] = {name: option.default for name, option in self.options.items()}
        return {**known, **self._values}

    return values


def _wrap_eq(original: Any) -> Any:
    @functools.wraps(original)
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807 - it stands for one
        if type(self) is type(other) and self._values == other._values:
            return True
        return original(self, other)

    return __eq__


def _wrap_hash(original: Any) -> Any:
    hashes: dict[type, int] = {}

    @functools.wraps(original)
    def __hash__(self: Any) -> int:  # noqa: N807 - likewise
        # It is made of the options' names, not of their values.
        found = hashes.get(type(self))
        if found is None:
            found = hashes[type(self)] = original(self)
        return found

    return __hash__


def _wrap_refresh(original: Any) -> Any:
    @functools.wraps(original)
    def refresh(self: Any) -> None:
        sizes = _sizes(self)
        if sizes != self.__dict__.get("_ptxlink_sizes"):
            original(self)
            # Those from before: what is registered meanwhile is seen the next time.
            self._ptxlink_sizes = sizes

    return refresh


def _sizes(context: Any) -> list[int]:
    """Return how much is registered where *context* looks; registries only ever grow."""
    registries = [*context._registries, *getattr(context, "typing_context", context)._registries]
    return [len(each) for registry in registries for each in vars(registry).values() if type(each) is list]


def _wrap_resolve(original: Any) -> Any:
    from numba.core.types import Function
    from numba.cuda.core.targetconfig import ConfigStack

    @functools.wraps(original)
    def _resolve_user_function_type(self: Any, func: Any, args: Any, kws: Any, literals: Any = None) -> Any:
        function = self._lookup_global(func) or func
        if type(function) is not Function:
            return original(self, func, args, kws, literals)
        signatures = self.__dict__.setdefault("_ptxlink_signatures", {})
        # A function that gets more templates is another type, and overloads see the flags.
        key = (function, tuple(args), tuple(kws.items()), ConfigStack.top_or_none())
        found = signatures.get(key)
        if found is None:
            found = original(self, func, args, kws, literals)
            # An overload or an intrinsic leaves more behind than its signature.
            if found is not None and function.get_impl_key(found) is function.typing_key:
                if len(signatures) >= _SIGNATURES:
                    signatures.clear()
                signatures[key] = found
        else:
            vars(function)["_impl_keys"][found.args] = function.typing_key
        return found

    return _resolve_user_function_type


SPEED = (
    ("numba.cuda.core.targetconfig", "TargetConfig.values", _wrap_values),
    ("numba.cuda.core.targetconfig", "TargetConfig.__eq__", _wrap_eq),
    ("numba.cuda.core.targetconfig", "TargetConfig.__hash__", _wrap_hash),
    ("numba.cuda.core.base", "BaseContext.refresh", _wrap_refresh),
    ("numba.cuda.typing.context", "BaseContext.refresh", _wrap_refresh),
    ("numba.cuda.typing.context", "BaseContext._resolve_user_function_type", _wrap_resolve),
)
"""Module, path and wrapper."""
