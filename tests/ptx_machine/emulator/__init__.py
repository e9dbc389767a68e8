"""A machine that executes PTX on the CPU, with NumPy, for tests."""

from .machine import Machine
from .parse import PtxError, parse

__all__ = ["Machine", "PtxError", "parse"]
