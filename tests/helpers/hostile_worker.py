"""
Links damaged inputs, one after another, and says what came of each; a crash ends the process.

Reads lines of JSON from stdin: number, kind and the content in hexadecimal. Writes a line with the outcome of
each; one that takes too long ends the process too, after a line that says in which module it was stuck. A
crash leaves Python's traceback behind.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from linkcases import KERNEL

import numba_ptxlink as pl
from numba_ptxlink import linker
from numba_ptxlink._arch import Arch
from numba_ptxlink._link import inputs as link_inputs

LONGEST = 20


def outcome(kind: str, content: bytes) -> str:
    """Return "linked", the name of the error, or what is wrong with an error."""
    inputs = [
        link_inputs.Input("ptx", "kernel.ptx", KERNEL.encode()),
        link_inputs.Input(kind, f"f.{kind}", content),
    ]
    try:
        linked = linker.link_inputs(inputs, Arch(8, 0), linker.LinkOptions(), lto=kind == "ltoir")
    except pl.PtxlinkError as error:
        return type(error).__name__ if str(error) else "an error without a message"
    return "linked" if linked.cubin.startswith(b"\x7fELF") else "linked to something that is no cubin"


class Watch:
    """Ends the process where a case takes too long, and says in which module it was stuck."""

    def __init__(self, answers: TextIO) -> None:
        self.answers = answers
        self.number, self.since = 0, 0.0
        self.main = threading.get_ident()
        threading.Thread(target=self.look, daemon=True).start()

    def look(self) -> None:
        """Look at the main thread every second; the libraries run without Python's lock."""
        while True:
            time.sleep(1)
            if self.since and time.monotonic() - self.since > LONGEST:
                frame = sys._current_frames()[self.main]
                place = Path(frame.f_code.co_filename).name
                self.answers.write(f"done {self.number} stuck: {place}\n")
                os._exit(3)


def main() -> None:
    """Serve until stdin ends."""
    # The tools write to the process's own output, which here is the answer's channel.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # A crash leaves the names of the files that Python was in, the innermost first.
    faulthandler.enable(answers, all_threads=False)
    watch = Watch(answers)
    for line in sys.stdin:
        case = json.loads(line)
        watch.number, watch.since = case["number"], time.monotonic()
        done = outcome(case["kind"], bytes.fromhex(case["content"]))
        watch.since = 0.0
        answers.write(f"done {case['number']} {done}\n")


if __name__ == "__main__":
    main()
