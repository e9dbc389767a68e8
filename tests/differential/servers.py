"""Ask processes that may crash or hang, tell how far they are, and end in time."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

EVERY = 10
"""Seconds between two lines of progress."""
GRACE = 5
"""Seconds that what has begun may take when the time is over."""


class Answer(NamedTuple):
    """
    What a process said to a request.

    Args:
        request: The request.
        said: What it said, in order.
        ended: The exit status of a process that ended in place of answering, None for an answer.
        error: The last line that such a process wrote to its standard error.
    """

    request: Any
    said: list[Any]
    ended: int | None = None
    error: str = ""

    @property
    def hung(self) -> bool:
        """Whether the process was ended by its own alarm."""
        return self.ended == -signal.SIGALRM


class Progress:
    """
    Counts of what became of cases, written to standard error every `EVERY` seconds.

    Args:
        what: What the cases are called.
        total: How many there are to be.
    """

    def __init__(self, what: str, total: int) -> None:
        self.counts: Counter[str] = Counter()
        self._what = what
        self._total = total
        self._done = 0
        self._began = self._told = time.monotonic()

    def note(self, *words: str) -> None:
        """Count one case more, under each of *words*."""
        self.add(1, words)

    def add(self, number: int, words: Iterable[str] = ()) -> None:
        """Count *number* cases more, and each of *words* once."""
        self._done += number
        self.counts.update(words)
        if time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            print(self, file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """The time since it began."""
        return time.monotonic() - self._began

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {word}" for word, number in self.counts.most_common())
        rate = self._done / max(self.seconds, 1e-9)
        done = f"{self._done} of {self._total} {self._what} in {self.seconds:.0f} s, {rate:.1f}/s"
        return f"{done}: {counts}" if counts else done


def answers(
    command: Sequence[str], requests: Iterable[Any], workers: int, *, ends: float = float("inf")
) -> Iterator[Answer]:
    """
    Yield what processes say to *requests*, in the order in which they are done.

    A process that ends is replaced. Requests are begun until the time *ends* of the monotonic clock; those
    that are not answered `GRACE` seconds later are given up.

    Args:
        command: Starts a process that calls `serve`.
        requests: What JSON can hold.
        workers: How many processes there are.
        ends: When no more is begun.
    """
    done: queue.Queue[Answer | None] = queue.Queue()
    waiting, lock = iter(requests), threading.Lock()
    clients = [_Client(command) for _ in range(workers)]

    def work(client: _Client) -> None:
        try:
            while time.monotonic() < ends:
                with lock:
                    request = next(waiting, done)
                if request is done:
                    break
                done.put(client.ask(request))
        finally:
            done.put(None)

    threads = [threading.Thread(target=work, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield from _taken(done, workers, ends + GRACE)
    finally:
        ends = 0
        for client in clients:
            client.kill()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()


def _taken(done: queue.Queue[Answer | None], working: int, late: float) -> Iterator[Answer]:
    """Yield what is put into *done*, until *working* times None was, or it is *late*."""
    while working and (left := late - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            answer = done.get(timeout=min(left, 3600))
            if answer is None:
                working -= 1
            else:
                yield answer


def serve(answer: Callable[[Any, Callable[[Any], None]], None], longest: int) -> None:
    """
    Answer the requests on standard input.

    Args:
        answer: Takes a request, and what says something to it.
        longest: Seconds for a request: the alarm ends the process, whatever library it is in.
    """
    faulthandler.enable()

    def write(*said: Any) -> None:
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()

    for line in sys.stdin:
        signal.alarm(longest)
        answer(json.loads(line), write)
        signal.alarm(0)
        write()


class _Client:
    """A process that is started when it is asked, and again after it ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `close` closes it

    def ask(self, request: Any) -> Answer:
        """Return what the process says to *request*."""
        if self._process is None:
            self._errors.seek(0)
            self._errors.truncate()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
            )
        process = self._process
        assert process.stdin
        assert process.stdout
        said: list[Any] = []
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
            for line in process.stdout:
                words = json.loads(line)
                if not words:
                    return Answer(request, said)
                said += words
        ended = self._end()
        self._errors.seek(0)
        return Answer(request, said, ended, (self._errors.read().splitlines() or [""])[-1][:200])

    def kill(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        if process:
            process.kill()

    def close(self) -> None:
        """Forget the process, which nothing asks any more."""
        self._end()
        self._errors.close()

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(BrokenPipeError), process:
            pass
        return process.returncode
