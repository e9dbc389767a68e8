"""
A kernel in Python, with a struct of parameters, moves N bodies: two galaxies that pass each other.

The exported kernel is launched with a tuple for the struct. The first step is compared with NumPy; with
`--draw`, the bodies are drawn. Without a GPU, the kernel runs on the CPU.
"""

import argparse
from pathlib import Path

import numpy as np
from numba import cuda

import numba_ptxlink as pl

HERE = Path(__file__).resolve().parent
STEP, SOFTENING, STEPS = np.float32(0.005), np.float32(0.05), 500


def galaxy(count, center, drift, generator):
    """Return *count* bodies (x, y, mass) on circles around a heavy one, and their velocities."""
    radius = np.sqrt(generator.uniform(0.05, 1, count))
    angle = generator.uniform(0, 2 * np.pi, count)
    radius[0] = 0
    bodies = np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(count, 1e-4)], axis=1)
    bodies[0, 2] = 1
    # On a circle, the pull of the heavy body with mass 1 is speed**2 / radius.
    speed = radius / (radius**2 + SOFTENING**2) ** 0.75
    velocities = speed[:, None] * np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    return bodies + np.array([*center, 0]), velocities + drift


def step_by_numpy(bodies, velocities):
    """Return bodies and velocities after a step, by NumPy in double precision."""
    offsets = bodies[None, :, :2] - bodies[:, None, :2]
    pull = bodies[None, :, 2] / ((offsets**2).sum(axis=2) + SOFTENING**2) ** 1.5
    velocities = velocities + STEP * (pull[:, :, None] * offsets).sum(axis=1)
    return np.concatenate([bodies[:, :2] + STEP * velocities, bodies[:, 2:]], axis=1), velocities


def run_steps(library, bodies, velocities, *, on_gpu):
    """Yield the bodies after each step."""
    # The kernel reads one array of bodies and writes the other; they are swapped after each step.
    arrays = [array.astype(np.float32) for array in (bodies, velocities, bodies)]
    current, speeds, moved = map(cuda.to_device, arrays) if on_gpu else arrays
    parameters, grid = (STEP, SOFTENING, len(bodies)), (len(bodies) + 127) // 128
    while True:
        library.advance[grid, 128](parameters, current, speeds, moved)
        current, moved = moved, current
        yield current.copy_to_host() if on_gpu else current.copy()


def draw(pictures, path):
    """Draw the bodies at each step of *pictures*, which maps steps to bodies, into the file *path*."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.5), layout="constrained")
    for axes, (step, bodies) in zip(figure.subplots(1, len(pictures)), pictures.items(), strict=True):
        axes.scatter(*bodies[:, :2].T, s=0.5, c=np.arange(len(bodies)) < len(bodies) // 2, cmap="coolwarm")
        axes.set(title=f"step {step}", xlim=(-3, 3), ylim=(-2, 2), aspect="equal")
    figure.savefig(path, dpi=80)
    print(f"Drawn: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--draw", type=Path, help="write a picture here; needs matplotlib")
    parser.add_argument("--bodies", type=int, default=2000)
    options = parser.parse_args()

    has_gpu = cuda.is_available()
    exported = pl.export(HERE / "bodies.py", arch="native" if has_gpu else "sm_90")
    print(f"{exported.signatures[-1].name}: {len(exported.read('kernels'))} bytes for GPUs")
    generator = np.random.default_rng(0)
    galaxies = [
        galaxy(options.bodies // 2, sign * np.array([1.2, 0.5]), sign * np.array([-0.5, 0.1]), generator)
        for sign in (-1, 1)
    ]
    bodies, velocities = (np.concatenate(parts) for parts in zip(*galaxies, strict=True))
    library = pl.load(exported) if has_gpu else pl.load(exported, device="cpu")
    steps = run_steps(library, bodies, velocities, on_gpu=has_gpu)
    pictures = {0: bodies}
    for step in range(1, STEPS + 1 if options.draw else 2):
        moved = next(steps)
        if step == 1:
            np.testing.assert_allclose(moved, step_by_numpy(bodies, velocities)[0], atol=1e-5)
            prefix = "" if has_gpu else "Verified on the CPU: "
            print(f"{prefix}A step of {len(bodies)} bodies matches NumPy")
        if step in (STEPS // 2, STEPS):
            pictures[step] = moved
    if options.draw:
        draw(pictures, options.draw)


if __name__ == "__main__":
    main()
