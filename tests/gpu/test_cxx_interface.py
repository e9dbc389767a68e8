"""Functions with the structs, namespaces and addresses of C++, called on a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import numba_ptxlink as pl

HEADER = """
#pragma once
namespace app {
struct Vec { float x, y, z; };
struct alignas(16) Particle { Vec pos; float mass; long long id; };
}
"""
SOURCE = """
#include "udfs.h"
extern "C" __global__ void use(app::Particle* p, int n, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    app::Particle moved = app::moved(p[i], app::Vec{1, 2, 3});
    out[i] = app::total(p, i + 1) + app::total({p, n}, i + 1) + moved.pos.z * moved.id;
  }
}
"""
vec = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")], align=True)
particle = np.dtype({"names": ["pos", "mass", "id"], "formats": [vec, "f4", "i8"], "itemsize": 32})


class Vec(NamedTuple):
    """What a function returns as a part of a struct."""

    x: float32  # noqa: F821 - a type of the front end that compiles it
    y: float32  # noqa: F821
    z: float32  # noqa: F821


class Particle(NamedTuple):
    """What a function returns."""

    pos: Vec
    mass: float32  # noqa: F821
    id: int64  # noqa: F821


def total(particles, count):
    """Return the mass of the first *count* particles."""
    mass = 0.0
    for i in range(count):
        mass += particles[i].mass
    return mass


def moved(one, step):
    """Return it elsewhere."""
    return Particle(Vec(one.pos.x + step.x, one.pos.y + step.y, one.pos.z + step.z), one.mass, one.id)


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_cxx_calls_with_its_own_structs(kind, tmp_path):
    """Each form of the code computes what Python does."""
    from cuda.bindings import runtime
    from cuda.core import Device, LaunchConfig, launch

    device = Device(0)
    device.set_current()
    (tmp_path / "particle.h").write_text(HEADER)
    common = {
        "structs": {
            particle: "alignas(16) app::Particle",
            Particle: "alignas(16) app::Particle",
            vec: "app::Vec",
            Vec: "app::Vec",
        },
        "include": "particle.h",
        "namespace": "app",
        "front_end": "numba-cuda",
    }
    by_pointer = {"const": "particles", "restrict": "particles", **common}
    functions = [
        pl.udf("float32(CPointer(particle), int32)", **by_pointer)(total),
        pl.udf("float32(particle[:], int32)", const="particles", **common)(total),
        pl.udf("Particle(particle, Vec)", **common)(moved),
    ]
    arch = pl.Arch.of(tuple(device.compute_capability))
    exported = pl.export(functions, tmp_path, name="udfs", archs=[arch], emit=[kind], include_dirs=[tmp_path])
    linked = pl.link(SOURCE, exported.artifacts[kind, arch.sm], arch=arch, include_dirs=[tmp_path])
    count = 100
    values = np.zeros(count, particle)
    values["mass"], values["id"] = np.arange(count) % 7, np.arange(count) % 5
    values["pos"]["z"] = np.arange(count) / 4
    stream = device.create_stream()
    there = device.allocate(values.nbytes, stream=stream)
    out = device.allocate(4 * count, stream=stream)

    def copy(target: int, source: int, size: int, way: str) -> None:
        kind = getattr(runtime.cudaMemcpyKind, f"cudaMemcpy{way}")
        (status,) = runtime.cudaMemcpyAsync(target, source, size, kind, int(stream.handle))
        assert status == runtime.cudaError_t.cudaSuccess
        stream.sync()

    copy(int(there.handle), values.ctypes.data, values.nbytes, "HostToDevice")
    config = LaunchConfig(grid=4, block=32)
    launch(stream, config, linked.kernel("use"), int(there.handle), np.int32(count), int(out.handle))
    found = np.zeros(count, np.float32)
    copy(found.ctypes.data, int(out.handle), found.nbytes, "DeviceToHost")
    expected = 2 * np.cumsum(values["mass"]) + (values["pos"]["z"] + 3) * values["id"]
    assert np.array_equal(expected.astype(np.float32), found)
