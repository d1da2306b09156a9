"""The microscope of examples/microscope as a job of Ray: filters are actors, and in NumPy.

python examples/ray_microscope.py slide.npy --window 100,200,1200,800 --factor 4 --out picture.npy

A slide is an array of red, green and blue, in a file that all nodes have. `--make` makes one.
"""

import argparse
import os
from collections.abc import Iterator

import multirail as mr
import numpy as np
import ray

# Pixels of a block in each direction. A block is always read as a whole.
BLOCK = 256


def piece(x: int, y: int, pixels: np.ndarray) -> np.ndarray:
    """Pixels and where they are, as one array of numbers."""
    return np.concatenate([[x, y, *pixels.shape], pixels.ravel()]).astype("u4")


def parts(piece: np.ndarray) -> tuple[int, int, np.ndarray]:
    x, y, *shape = (int(number) for number in piece[:5])
    return x, y, piece[5:].reshape(shape)


def blocks(x: int, y: int, width: int, height: int) -> Iterator[np.ndarray]:
    """The corners of the blocks that a window touches."""
    for top in range(y // BLOCK * BLOCK, y + height, BLOCK):
        for left in range(x // BLOCK * BLOCK, x + width, BLOCK):
            yield np.array([left, top])


def picture(
    slide: str, window: tuple[int, int, int, int], factor: int, copies: int = 2
) -> np.ndarray:
    """The window of a slide, of which factor x factor pixels are one of the picture."""
    x, y, width, height = window
    p = mr.ray.Pipeline()

    @p.filter(copies=copies, stateless=True, num_cpus=0.5)
    def read(corner):
        left, top = corner
        pixels = np.load(slide, mmap_mode="r")[top : top + BLOCK, left : left + BLOCK]
        return piece(left, top, pixels)

    @p.filter(copies=copies, stateless=True, num_cpus=0.5)
    def clip(block):
        left, top, pixels = parts(block)
        across, down = max(x - left, 0), max(y - top, 0)
        inside = pixels[down : y + height - top, across : x + width - left]
        # From here on, places are relative to the window.
        return piece(left + across - x, top + down - y, inside)

    @p.filter(copies=copies, stateless=True, num_cpus=0.5)
    def subsample(clipped):
        left, top, pixels = parts(clipped)
        counted = np.concatenate([pixels, np.ones((*pixels.shape[:2], 1), "u4")], axis=2)
        for axis, start in enumerate((top, left)):
            at = np.arange(counted.shape[axis])
            begins = np.flatnonzero((at == 0) | ((start + at) % factor == 0))
            counted = np.add.reduceat(counted, begins, axis=axis)
        return piece(left // factor, top // factor, counted)

    sums = np.zeros((-(-height // factor), -(-width // factor), 4), "u4")
    with p:
        for result in p.run(blocks(*window)):
            left, top, counted = parts(result)
            # Pixels at the edge of a block are completed by the neighbouring block.
            sums[top : top + counted.shape[0], left : left + counted.shape[1]] += counted
    return (sums[..., :3] // sums[..., 3:]).astype("u1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slide")
    parser.add_argument("--make", type=int, metavar="PIXELS", help="make a square slide first")
    parser.add_argument("--window", default="0,0,512,512", metavar="X,Y,WIDTH,HEIGHT")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if options.make:
        pixels = np.random.default_rng(0).integers(256, size=(options.make, options.make, 3))
        np.save(options.slide, pixels.astype("u1"))
    x, y, width, height = (int(number) for number in options.window.split(","))
    ray.init()
    slide = os.path.abspath(options.slide)
    made = picture(slide, (x, y, width, height), options.factor, options.copies)
    np.save(options.out, made)
    print(f"{options.out} has {made.shape[1]} x {made.shape[0]} pixels")


if __name__ == "__main__":
    main()
