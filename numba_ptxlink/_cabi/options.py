"""The options of functions in C, read and checked: `abi_info`, and the launch bounds of kernels."""

from __future__ import annotations

import dataclasses
import logging
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from numba_ptxlink.errors import AbiError

from . import names as cnames

log = logging.getLogger(__name__)

# What NVVM accepts of the identifiers of PTX, "Identifiers" in the PTX ISA: it reserves % for itself, and
# _ and $ are none alone.
_SYMBOL = re.compile(r"(?:[A-Za-z]|[_$][\w$])[\w$]*", re.ASCII)
_CHOICES = {"aggregates": ("value", "flat"), "on_error": ("zero", "trap"), "checked": (True, False)}
# The most that launch bounds may be, "Launch Bounds" and "Technical Specifications" in the CUDA Programming
# Guide. The size of a cluster depends on the GPU; PTX has 32 bits for it.
_MOST = (1024, 32, (1 << 31) - 1)


@dataclass(frozen=True)
class AbiOptions:
    """
    The options in `abi_info`.

    Args:
        abi_name: The symbol, None for the Python function's `__name__`.
        aggregates: "value" passes structs as C does, "flat" passes each member as a parameter.
        on_error: What an error does: "zero" returns a zero-initialised value, "trap" stops the kernel.
        checked: Whether a division by zero and an index out of range are errors, in the function and in all
            that it calls. Without it, errors are `raise`, `assert` and what Numba always checks.
    """

    abi_name: str | None = None
    aggregates: str = "value"
    on_error: str = "zero"
    checked: bool = False

    @classmethod
    def of(cls, abi_info: object, spelled: str = "abi_info[{!r}]") -> AbiOptions:
        """
        Read and check an `abi_info` mapping.

        Args:
            abi_info: The mapping.
            spelled: How messages spell a key of it.

        Raises:
            AbiError: It is not a mapping, or has an unknown key or value.
        """
        if abi_info is None:
            return cls()
        if not isinstance(abi_info, Mapping):
            raise AbiError(
                f'abi_info must be a dict such as {{"abi_name": "f"}}, not {type(abi_info).__name__}: '
                f"{abi_info!r}."
            )
        keys = [field.name for field in dataclasses.fields(cls)]
        for key, value in abi_info.items():
            if key not in keys:
                raise AbiError(f"abi_info has the unknown key {key!r}; the keys are {', '.join(keys)}.")
            if key in _CHOICES and repr(value) not in map(repr, _CHOICES[key]):
                choices = ", ".join(map(str, _CHOICES[key]))
                raise AbiError(f"{spelled.format(key)} is {value!r}; the choices are {choices}.")
        return cls(**abi_info)

    @classmethod
    def of_compile(cls, abi_info: object) -> AbiOptions:
        """
        Read the `abi_info` of `numba.cuda.compile`: whatever numba-cuda takes is taken.

        A name that C++ cannot call is logged as a warning, unless it is one that compilers keep for
        themselves, as those of OptiX and of libraries of device functions are: they know by what name the
        function is called, even if no C++ declares it. Those, and unknown keys, are logged at level INFO.
        Neither is a Python warning, which would be an error for some callers.

        Raises:
            AbiError: It is not a mapping, its name is not an identifier of PTX, or a value is unknown.
        """
        if not abi_info:
            return cls()
        if not isinstance(abi_info, Mapping):
            return cls.of(abi_info)
        known = {
            field.name: abi_info[field.name] for field in dataclasses.fields(cls) if field.name in abi_info
        }
        name = known.pop("abi_name", None)
        options = cls.of(known)
        for key in [key for key in abi_info if key not in {*known, "abi_name"}]:
            log.info("abi_info has the unknown key %r, which is ignored", key)
        if name is None:
            return options
        if not isinstance(name, str):
            cnames.check(name, "the function")
        if not _SYMBOL.fullmatch(name):
            raise AbiError(
                f"{name!r}, the name of the function, is not an identifier of PTX: letters, digits, _ and $, "
                f"no digit first, and neither _ nor $ alone; use {cnames.propose(name)!r}, for example."
            )
        try:
            if not cnames.is_mangled(name):
                cnames.check(name, "the function")
        except AbiError as error:
            level = logging.INFO if cnames.is_for_compilers(name) else logging.WARNING
            log.log(level, "%s Compiled all the same.", error)
        return dataclasses.replace(options, abi_name=name)


def launch_bounds(given: object, what: str) -> tuple[int, ...] | None:
    """
    Read and check the launch bounds *given* for *what*: a number, or one to three in a tuple or list.

    Raises:
        AbiError: They are none. Says what each bound is and may be.
    """
    if given is None:
        return None
    bounds = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    numbers = tuple(
        operator.index(bound) if hasattr(bound, "__index__") and not isinstance(bound, bool) else 0
        for bound in bounds
    )
    known = 0 < len(bounds) <= len(_MOST)
    if not known or any(not 0 < number <= most for number, most in zip(numbers, _MOST, strict=False)):
        raise AbiError(
            f"launch_bounds={given!r} of {what}: give the maximum number of threads in a block (an int, 1 to "
            f"{_MOST[0]}), or a tuple of that, the minimum number of blocks per multiprocessor (1 to "
            f"{_MOST[1]}) and the maximum number of blocks in a cluster (1 or more), or leave it out."
        )
    return numbers
