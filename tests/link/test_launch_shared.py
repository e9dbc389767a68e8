"""Dynamic shared memory beyond 48 KiB: launches of several threads, and static memory beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import launches
import pytest

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

PYTHON = """
import sys, threading
import numba_ptxlink as pl
kernel = pl.load("made.json").taking
failed = []
def run(size):
    for _ in range(int(sys.argv[1])):
        try:
            kernel[1, 1, None, size]()
        except pl.LaunchError as error:
            failed.append(str(error))
threads = [threading.Thread(target=run, args=(size,)) for size in map(int, sys.argv[2:])]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(failed), *failed[:1])
"""
CXX = """
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#include "made.launch.h"
int main(int count, char** words) {
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int number = 2; number < count; ++number) {
    const long long size = std::atoll(words[number]);
    threads.emplace_back([&failed, size, words] {
      for (int turn = 0; turn < std::atoi(words[1]); ++turn) {
        failed += made_kernels::taking(nullptr, 1, 1, size) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d\\n", failed.load());
}
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return the folder of an export, and what launches its kernel from Python and from C++."""
    folder = tmp_path_factory.mktemp("shared")
    kernel = launches.kernel_of()
    pl.export([kernel], folder, archs=["sm_90"], emit=["kernels", "launcher"], name="made")
    (folder / "program.cpp").write_text(CXX)
    flags = ["-std=c++17", "-O1", "-pthread", f"-I{folder}", f"-I{INCLUDE_DIR}"]
    compiler = shutil.which("g++")
    subprocess.run([compiler, *flags, folder / "program.cpp", "-o", folder / "program", "-ldl"], check=True)
    return folder, {"python": [sys.executable, "-c", PYTHON], "cxx": [str(folder / "program")]}


def failures(commands, language, *words, **variables):
    """Return what a program with the arguments *words* says of its launches that failed."""
    folder, programs = commands
    environ = {**launches.fake_driver(folder, **variables), "FAKE_LOG": os.devnull}
    command = [*programs[language], *map(str, words)]
    return subprocess.check_output(command, cwd=folder, env=environ, text=True).strip()


@pytest.mark.parametrize("language", ["python", "cxx"])
def test_threads_do_not_take_it_from_each_other(commands, language):
    """Launches with 100, 60 and 1 KiB all succeed, whatever the order in which threads ask for them."""
    turns = 2000 if language == "python" else 20000
    assert failures(commands, language, turns, 100 << 10, 60 << 10, 1 << 10) == "0"


@pytest.mark.parametrize("language", ["python", "cxx"])
def test_static_memory_counts(commands, language):
    """With 40 KiB of its own, a kernel has to be allowed 20 KiB; what the device has not is refused."""
    assert failures(commands, language, 1, 20 << 10, static=str(40 << 10)) == "0"
    for size in (200 << 10, (1 << 32) + 16, (1 << 63) - 1):
        refused = failures(commands, language, 1, size, static=str(40 << 10))
        assert refused.split()[0] == "1"
        if language == "python":
            assert refused.endswith(
                f"cannot have {size} bytes of dynamic shared memory; pass at most 191488."
            )
