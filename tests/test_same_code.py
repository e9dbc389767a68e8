"""With the plugin and without it, the corpus compiles to the same PTX but for names."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import processes
import pytest
from front_ends import NAMES, get

# Four processes compile all of the corpus.
pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("helpers") / "corpus.py"


@pytest.fixture(scope="module", params=NAMES)
def both(request):
    """Compile the corpus in two processes; return the results of stock, and of the plugin."""
    get(request.param)

    def run(mode):
        # The order in which Numba joins values in debug code is that of a set.
        environ = {**os.environ, "NUMBA_PTXLINK": mode, "PYTHONHASHSEED": "0"}
        command = [sys.executable, str(WORKER), request.param]
        done = processes.run(*command, env=environ)
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(run, "01"))


def test_stock_compiles_the_corpus(both):
    """Nearly all of the corpus compiles without the plugin, so that there is something to compare."""
    stock, _ = both
    refused = [entry for entry, outcome in stock.items() if isinstance(outcome, str)]
    assert len(refused) < len(stock) // 20, refused


def test_the_plugin_compiles_the_same(both):
    """Whatever compiles without the plugin has the same instructions, prototypes and type with it."""
    stock, plugin = both
    assert list(stock) == list(plugin)
    compiled = {entry: outcome for entry, outcome in stock.items() if not isinstance(outcome, str)}
    differing = [entry for entry, outcome in compiled.items() if outcome != plugin[entry]]
    assert [] == differing
