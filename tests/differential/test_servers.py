"""Processes that crash, hang or are late are told from those that answer."""

from __future__ import annotations

import sys
import time

import servers

COMMAND = [
    sys.executable,
    "-c",
    f"""
import os, sys, time
sys.path.insert(0, {servers.__file__.rpartition("/")[0]!r})
import servers
def answer(request, say):
    say("begun")
    if request == "crash":
        os.abort()
    while request == "hang":
        time.sleep(1)
    say(request)
servers.serve(answer, 1)
""",
]


def test_a_process_that_ends_is_replaced():
    """What each said is known, and what ended it."""
    requests = ["one", "crash", "hang", "two"]
    answers = {answer.request: answer for answer in servers.answers(COMMAND, requests, 1)}
    assert requests == list(answers)
    assert (["begun", "one"], None) == (answers["one"].said, answers["one"].ended)
    assert (["begun", "two"], None) == (answers["two"].said, answers["two"].ended)
    assert (["begun"], False, True) == (
        answers["crash"].said,
        answers["crash"].hung,
        bool(answers["crash"].ended),
    )
    assert (["begun"], True) == (answers["hang"].said, answers["hang"].hung)


def test_what_is_late_is_given_up(monkeypatch):
    """Nothing is begun after the time, and what has begun is waited for a while only."""
    monkeypatch.setattr(servers, "GRACE", 0)
    began = time.monotonic()
    assert [] == list(servers.answers(COMMAND, ["one"], 1, ends=began - 1))
    answered = servers.answers(COMMAND, iter(lambda: "one", None), 1, ends=began + 1)
    assert {"one"} == {answer.request for answer in answered}
