"""`python -m numba_ptxlink` is the command `numba-ptxlink`."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
