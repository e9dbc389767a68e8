"""
Compare exported functions on the host with the same functions in C++, compiled by g++ -O3 -march=native.

`prepare` exports the functions and compiles a program for each way of calling them. Any other argument runs
the program of that way. Times are for one element of arrays.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

# The tests compare these functions with `load(device="cpu")`, bit by bit.
UDFS = Path(__file__).resolve().parents[2] / "tests" / "helpers" / "host_udfs.py"
FUNCTION_NAMES = ("polynomial", "along", "gcd", "functions", "damp", "total", "scale")
# The same functions in C++.
CXX = """
static double polynomial(double x, double a, double b) { return a * x * x + b * x + 1.0; }
static Point along(Point p, Point q, float t) { return {p.x + (q.x - p.x) * t, p.y + (q.y - p.y) * t}; }
static int gcd(int a, int b) { while (b) { int rest = a % b; a = b; b = rest; } return a; }
static double functions(double x, double y)
{
    return std::sin(x) * std::log(y) + std::pow(y, x) + std::erf(x) + std::atan2(x, y);
}
static float damp(float value, float time) { return value * std::exp(-0.1f * time); }
static float total(numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> x)
{
    float sum = 0;
    for (long i = 0; i < x.size(); ++i) sum += x[i];
    return sum;
}
static void scale(float* values, int count) { for (int i = 0; i < count; ++i) values[i] *= 2; }
"""
# A program that prints the shortest time of each function. HAND stands for the functions in C++.
MAIN = """
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <vector>
#include "udfs.h"
#if defined(INCLUDED)
#include "udfs.host.cpp"
#endif
#if defined(BY_HAND)
namespace by_hand {
HAND
}
#define CALL(name) by_hand::name
#else
#define CALL(name) ::name
#endif
// No power of two: arrays at equal offsets in their pages make loads wait for stores (4K aliasing).
static const int count = 3000;
static std::vector<float> a(count), b(count), c(count);
static std::vector<double> x(count), y(count), z(count);
static std::vector<int> m(count), n(count), k(count);
static std::vector<Point> p(count), q(count);
static void keep(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }
struct Timed {
    const char* name;
    void (*loop)();
    double wall, processor;  // the fewest seconds of a round
};
#define EACH(statement) \\
    [] { \\
        for (int i = 0; i < count; ++i) { statement; } \\
        keep(z.data()), keep(q.data()), keep(k.data()), keep(c.data()); \\
    }
int main()
{
    for (int i = 0; i < count; ++i) {
        a[i] = i * 0.01f; b[i] = i * 0.001f; x[i] = 0.1 + i * 1e-3; y[i] = 0.5 + i * 1e-4;
        m[i] = i * 7919 % 100003 + 1; n[i] = i * 104729 % 99991 + 1; p[i] = {a[i], b[i]};
    }
    Timed functions[] = {
        {"polynomial", EACH(z[i] = CALL(polynomial)(x[i], 2, 3)), 1e9, 1e9},
        {"struct", EACH(q[i] = CALL(along)(p[i], p[count - 1 - i], 0.5f)), 1e9, 1e9},
        {"integers", EACH(k[i] = CALL(gcd)(m[i], n[i])), 1e9, 1e9},
        {"functions of libm", EACH(z[i] = CALL(functions)(x[i], y[i])), 1e9, 1e9},
        {"float exp", EACH(c[i] = CALL(damp)(a[i], b[i])), 1e9, 1e9},
        {"array", [] { c[0] = CALL(total)({a.data(), count}); keep(c.data()); }, 1e9, 1e9},
        {"loop over a pointer", [] { CALL(scale)(c.data(), count); keep(c.data()); }, 1e9, 1e9},
    };
    // A round has all functions, so that no function has all of its samples in one slow phase of the machine.
    for (int round = 0; round < 60; ++round)
        for (Timed& function : functions) {
            std::clock_t clock = std::clock();
            auto start = std::chrono::steady_clock::now();
            for (int turn = 0; turn < 20; ++turn) function.loop();
            std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
            double processor = double(std::clock() - clock) / CLOCKS_PER_SEC;
            function.wall = std::min(function.wall, wall.count());
            function.processor = std::min(function.processor, processor);
        }
    const char* before = "{";
    for (const Timed& function : functions) {
        std::printf("%s\\"%s, an element\\": ", before, function.name);
        std::printf("[%g, %g]", function.wall / (20.0 * count), function.processor / (20.0 * count));
        before = ", ";
    }
    std::printf("}\\n");
}
"""
# The compiler's options for each way of calling the functions.
WAYS = {"C++": ["-DBY_HAND"], "included": ["-DINCLUDED"], "-flto": ["-flto", "udfs.host.cpp"]}


def prepare() -> None:
    """Export the functions, and compile the programs."""
    from numba_ptxlink.linker import INCLUDE_DIR

    source = runpy.run_path(str(UDFS))["source"]
    Path("udfs.py").write_text(source("numba-cuda", *FUNCTION_NAMES))
    command = ["-m", "numba_ptxlink", "export", "udfs.py", "-o", ".", "--emit", "ptx,host", "--quiet"]
    subprocess.run([sys.executable, *command], check=True)
    Path("main.cpp").write_text(MAIN.replace("HAND\n", CXX))
    compiler = shutil.which("g++") or "g++"
    options = ["-std=c++17", "-O3", "-march=native", f"-I{INCLUDE_DIR}", "-I."]
    for way, flags in WAYS.items():
        subprocess.run([compiler, *options, "main.cpp", *flags, "-o", way.strip("-")], check=True)


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else subprocess.run([f"./{sys.argv[1].strip('-')}"], check=True)
