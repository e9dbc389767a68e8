"""What travels between replaced functions, notes about numba-cuda's objects, and applying by count."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import pytest

from numba_ptxlink._front_end import substitution
from numba_ptxlink._front_end.substitution import Substitution, applied, apply, original_of, undo
from numba_ptxlink._numba_cuda import context


def test_a_context_lasts_for_its_block():
    """What is entered is seen inside, with what was entered around it, and is gone after an error too."""
    with context.entered(cc=(9, 0)):
        with contextlib.suppress(KeyError), context.entered(sought=("f",)):
            assert ((9, 0), ("f",)) == (context.current().cc, context.current().sought)
            raise KeyError
        assert ((9, 0), ()) == (context.current().cc, context.current().sought)
    assert context.CompileContext() == context.current()


def test_a_thread_has_a_context_of_its_own():
    """What one thread enters does not reach another."""
    seen = []
    with context.entered(cc=(9, 0)):
        thread = threading.Thread(target=lambda: seen.append(context.current().cc))
        thread.start()
        thread.join()
    assert [None] == seen


@pytest.fixture
def place(monkeypatch):
    """Return a module with an attribute, a substitution of it, and how often it was made."""
    module = SimpleNamespace(value=1)
    monkeypatch.setattr(substitution, "importlib", SimpleNamespace(import_module=lambda _: module))
    made = []
    row = Substitution(
        "somewhere", "value", lambda original: made.append(original) or original + 1, "A test."
    )
    return module, row, made


def test_what_two_want_stays_until_both_are_done(place):
    """A replacement is made once, and taken back when the last who wanted it is done."""
    module, row, made = place
    apply(row)
    with applied((row,)):
        assert (2, 1, [1]) == (module.value, original_of(row), made)
        undo(row)
        assert 2 == module.value
    assert (1, 1) == (module.value, original_of(row))


def test_what_cannot_be_applied_leaves_nothing_behind(place):
    """Where the second of two rows does not exist, the first is taken back."""
    module, row, _ = place
    missing = Substitution("somewhere", "nothing", lambda original: original, "A test.")
    with pytest.raises(KeyError), applied((row, missing)):
        pass
    assert 1 == module.value
