"""
What numba-cuda's front end works out again and again, worked out once, or not until somebody asks.

A cold kernel spends a quarter of its time there, and one out of the cache most of it. What a replacement
returns is what numba-cuda would have returned.
"""

from __future__ import annotations

import functools
import inspect
from types import BuiltinFunctionType, FunctionType
from typing import Any

_SIGNATURES = 4096
"""How many types of calls are remembered."""

_NUMBA = {"numba", "abc", "builtins"}
"""The packages of classes that Numba makes; those it makes out of overloads are of `abc`."""

_OTHER_SIGNATURES = {"__wrapped__", "__signature__", "__partialmethod__", "_partialmethod"}
"""Attributes by which a function claims other parameters than its own."""


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
        registered = _registered(self)
        if registered != self.__dict__.get("_ptxlink_registered"):
            # Functions can resolve calls of others, which may have been given more overloads.
            self.__dict__.pop("_ptxlink_signatures", None)
            original(self)
            # Those from before: what is registered meanwhile is seen the next time.
            self._ptxlink_registered = registered

    return refresh


def _registered(context: Any) -> list[int]:
    """Return how much is registered where *context* looks; registries only ever grow."""
    registries = [*context._registries, *getattr(context, "typing_context", context)._registries]
    count, lists = context.__dict__.get("_ptxlink_lists", (0, []))
    if count != len(registries):
        lists = [each for registry in registries for each in vars(registry).values() if type(each) is list]
        context._ptxlink_lists = len(registries), lists
    return [len(registries), *map(len, lists)]


def _wrap_get_call_type(original: Any) -> Any:
    from numba.cuda.core.targetconfig import ConfigStack
    from numba.cuda.types import Function, Type
    from numba.cuda.typing.context import BaseContext

    @functools.wraps(original)
    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = ConfigStack.top_or_none()
        # Without flags nothing is being compiled, and the target may be another.
        if type(self) is not Function or kws or flags is None or not isinstance(context, BaseContext):
            return original(self, context, args, kws)
        signatures = context.__dict__.setdefault("_ptxlink_signatures", {})
        # A function that gets more templates is another type, and overloads see the flags.
        key = (self, tuple(args), flags)
        try:
            found = signatures.get(key)
        except TypeError:  # some functions are resolved for values, which need not have a hash
            return original(self, context, args, kws)
        if found is None:
            found = original(self, context, args, kws)
            if found is not None and known(self, found, args):
                if len(signatures) >= _SIGNATURES:
                    signatures.clear()
                signatures[key] = found
        else:
            self._impl_keys[found.args] = self.typing_key
        return found

    def known(function: Any, signature: Any, args: Any) -> bool:
        # An overload or an intrinsic leaves more behind than its signature, and nobody knows what other
        # packages' templates look at.
        return (
            function.get_impl_key(signature) is function.typing_key
            and all(isinstance(each, Type) for each in args)
            and all(
                each.__module__.partition(".")[0] in _NUMBA
                for template in function.templates
                for each in template.__mro__
            )
        )

    return get_call_type


class _EntryVars(dict[Any, Any]):
    """The variables alive at the start of each block, worked out when the first one is asked for."""

    def __init__(self, blocks: Any, lifetime: Any) -> None:
        # Passes put blocks in and take blocks out.
        self._blocks, self._lifetime = dict(blocks), lifetime

    def __contains__(self, block: Any) -> bool:
        return any(block is each for each in self._blocks.values())

    def __missing__(self, block: Any) -> Any:
        from numba.cuda.core.analysis import compute_live_variables

        if self:
            raise KeyError(block)
        lifetime = self._lifetime
        alive = compute_live_variables(
            lifetime.cfg, self._blocks, lifetime.usedefs.defmap, lifetime.deadmaps.combined
        )
        self.update((each, alive[offset]) for offset, each in self._blocks.items())
        return self[block]


def _wrap_run(original: Any) -> Any:
    from numba.cuda.core import ir, transforms
    from numba.cuda.core.postproc import VariableLifetime
    from numba.cuda.misc.special import literal_unroll

    names = {*ir.global_types, *ir.freevar_types}

    def unrolls(blocks: Any) -> bool:
        return any(
            type(assign.value) in names and assign.value.value is literal_unroll
            for block in blocks.values()
            for assign in block.find_insts(ir.assign_types)
        )

    @functools.wraps(original)
    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        function = self.func_ir
        # Generators ask at once, and what unrolls loops asks after it has changed them.
        if function.is_generator or unrolls(function.blocks):
            original(self, emit_dels, extend_lifetimes)
            return
        function.generator_info = None
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.variable_lifetime = VariableLifetime(function.blocks)
        function.block_entry_vars = _EntryVars(function.blocks, function.variable_lifetime)
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)

    return run


def _wrap_rec_list_vars(original: Any) -> Any:
    from numba.cuda.core import ir

    leaves: dict[type, bool] = {}

    @functools.wraps(original)
    def _rec_list_vars(self: Any, value: Any) -> Any:
        kind = type(value)
        if kind is ir.Var:
            return [value]
        leaf = leaves.get(kind)
        if leaf is None:
            holders = (*ir.var_types, *ir.inst_types, list, tuple, dict)
            leaf = leaves[kind] = not issubclass(kind, holders)
        if leaf:
            return []
        if kind is dict:
            return [name for each in value.values() for name in self._rec_list_vars(each)]
        return original(self, value)

    return _rec_list_vars


def _wrap_has_loc(original: Any) -> Any:
    @functools.wraps(original)
    def _has_loc(function: Any) -> Any:
        if type(function) is not FunctionType or function.__dict__.keys() & _OTHER_SIGNATURES:
            return original(function)
        code = function.__code__
        flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        return "loc" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]

    return _has_loc


def _wrap_get_abi_sizeof(original: Any) -> Any:
    from llvmlite.ir import Type

    sizes: dict[tuple[type, str], Any] = {}

    @functools.wraps(original)
    def get_abi_sizeof(self: Any, kind: Any) -> Any:
        if not isinstance(kind, Type):
            return original(self, kind)
        # A target has one data layout.
        key = type(self), str(kind)
        size = sizes.get(key)
        if size is None:
            size = original(self, kind)
            # A name may stand for something else in another module.
            if "%" not in key[1]:
                sizes[key] = size
        return size

    return get_abi_sizeof


def _wrap_resolve_value_type(original: Any) -> Any:
    from numba.core.typing.typeof import typeof_impl as numba_typeof_impl
    from numba.cuda.typing.typeof import typeof_impl

    @functools.wraps(original)
    def resolve_value_type(self: Any, value: Any) -> Any:
        # Numba tries everything else that a built-in function could be before it looks for its name.
        if type(value) is BuiltinFunctionType and _unknown(typeof_impl, numba_typeof_impl):
            found = self._lookup_global(value)
            if found is not None:
                return found
        return original(self, value)

    return resolve_value_type


def _unknown(*typeof_impls: Any) -> bool:
    return all(each.dispatch(BuiltinFunctionType) is each.dispatch(object) for each in typeof_impls)


SPEED = (
    ("numba.cuda.core.targetconfig", "TargetConfig.values", _wrap_values),
    ("numba.cuda.core.targetconfig", "TargetConfig.__eq__", _wrap_eq),
    ("numba.cuda.core.targetconfig", "TargetConfig.__hash__", _wrap_hash),
    ("numba.cuda.core.base", "BaseContext.refresh", _wrap_refresh),
    ("numba.cuda.typing.context", "BaseContext.refresh", _wrap_refresh),
    ("numba.cuda.typing.context", "types.BaseFunction.get_call_type", _wrap_get_call_type),
    ("numba.cuda.typing.context", "BaseContext.resolve_value_type", _wrap_resolve_value_type),
    ("numba.cuda.core.postproc", "PostProcessor.run", _wrap_run),
    ("numba.cuda.core.ir", "Inst._rec_list_vars", _wrap_rec_list_vars),
    ("numba.cuda.core.base", "_has_loc", _wrap_has_loc),
    ("numba.cuda.core.base", "BaseContext.get_abi_sizeof", _wrap_get_abi_sizeof),
)
"""Module, path and wrapper."""
