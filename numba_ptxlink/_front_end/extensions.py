"""Which modules have added to what a front end can type, by `@overload` for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def of_typing(context: Any) -> set[str]:
    """
    Return the names of the modules whose templates the typing context *context* has, its own included.

    Args:
        context: The typing context of Numba, or of what is derived from it, whose registries are loaded.
    """
    context.refresh()
    tables = (context._functions, context._attributes, context._globals)  # noqa: SLF001 - nothing lists them
    return {
        module
        for table in tables
        for value in list(table.values())
        for entry in (value if isinstance(value, (list, tuple)) else (value,))
        for template in getattr(entry, "templates", None) or (entry,)
        for module in _modules(template)
    }


def _modules(template: Any) -> Iterator[str]:
    # Templates of overloads and intrinsics are classes that Numba makes around a function.
    for wrapped in ("_overload_func", "_definition_func"):
        function = getattr(template, wrapped, None)
        if function is not None:
            yield from _modules(function)
    scope = getattr(template, "__globals__", None)
    module = scope.get("__name__") if scope is not None else getattr(template, "__module__", None)
    yield str(module)
