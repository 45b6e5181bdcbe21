"""What dropped batches leave: memory that the next ones use again, and no more than these need."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
from depth import pairs
from scalars import rolled

import relive
from relive._ring import kernels as _kernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux tells it")
MB = 1 << 20
STEPS = 600
PAGES = 30  # of the system, at most, for as many draws


@cache
def frames(length: int = 1) -> relive.ReplayBuffer:
    """Make a buffer with items of 56 KB, or sequences of 7 KB a step."""
    stack = 4 if length == 1 else None
    schema = relive.Schema(obs=relive.Field((84, 84), "uint8", stack=stack, pad="first"), action=relive.Field())
    item = relive.Transitions() if length == 1 else relive.Sequences(length)
    buffer = relive.ReplayBuffer(schema, STEPS, item=item, seed=0)
    no, frame = np.zeros(STEPS, bool), np.arange(STEPS + 4, dtype=np.uint8)
    seen = np.broadcast_to(frame[:, None, None], (STEPS + 4, 84, 84))
    for t in range(STEPS):
        obs, after = (seen[t : t + 4], seen[t + 1 : t + 5]) if stack else (seen[t], seen[t + 1])
        buffer.add(obs=obs, action=0, reward=t, next_obs=after, terminated=no[t], truncated=no[t])
    return buffer


def resident() -> float:
    """Return the resident memory in megabytes."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / MB


def growth(buffer: relive.ReplayBuffer, sizes: Iterable[int]) -> float:
    """Measure the growth of resident memory over draws of these sizes, none of which is kept."""
    before = resident()
    for n in sizes:
        buffer.sample(int(n))
    return resident() - before


@pytest.mark.parametrize("after", [32, 2, 1])
def test_one_large_batch(after: int) -> None:
    """Check that it is freed some draws later, however small these are, as after an evaluation's large draw."""
    buffer = frames()
    growth(buffer, [after] * 200)
    assert growth(buffer, [2000, *[after] * 200]) < 20


@pytest.mark.skipif(not _kernels.is_native(), reason="NumPy's kernels need memory of their own for each draw")
def test_what_is_given_back_reaches_the_system() -> None:
    """Check with other allocations meanwhile, below which a heap would keep it."""
    buffer = frames()
    growth(buffer, [1] * 200)
    large = [np.empty(size << 20, np.uint8) for size in range(2, 32, 4)]
    del large  # from now on the C library takes up to 30 MB from its heap
    before, kept = resident(), []
    for n in range(100, 500, 40):
        held = [buffer.sample(n) for _ in range(4)]
        kept.append(held[0].ids.tobytes() * 500)
        del held
    growth(buffer, [1] * 200)
    assert resident() - before < 40


def test_batches_of_many_sizes() -> None:
    """Check that no more is kept than the largest batch takes, though blocks seldom fit again."""
    buffer, rng = frames(), np.random.default_rng(0)
    growth(buffer, [1] * 200)
    sizes = np.exp(rng.uniform(np.log(200), np.log(2400), 30))
    assert growth(buffer, sizes) < 1.3 * 2400 * 2 * 4 * 84 * 84 / MB


def test_batches_that_are_kept_and_dropped_together() -> None:
    """Keep and drop batches as an algorithm does that draws several before it learns."""
    buffer = frames()
    growth(buffer, [1] * 200)
    before = resident()
    held = [buffer.sample(100) for _ in range(24)]
    taken = resident() - before
    held.clear()
    growth(buffer, [8] * 200)
    assert resident() - before < 20 < taken


def faults(draw: Callable[[int], Any], sizes: list[int], kept: int) -> int:
    """Count the system's pages for 30 draws of these sizes, of which the last few are kept."""
    held: list[Any] = []

    def run(count: int) -> None:
        for n in islice(cycle(sizes), count):
            held.append(draw(n))
            del held[: len(held) - kept]

    run(20)
    gc.collect()
    counts = []
    while len(counts) < 3 and min(counts, default=PAGES) >= PAGES:  # others of this process take pages, too, for once
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        run(30)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)


@pytest.mark.skipif(not _kernels.is_native(), reason="NumPy's kernels need memory of their own for each draw")
@pytest.mark.parametrize(
    ("sizes", "form"), pairs([[32], [256], [1500], [32, 256], [200, 700], [31, 32, 33]], [(0, 1), (1, 16), (3, 1)])
)
def test_the_memory_of_dropped_batches_is_used_again(sizes: list[int], form: tuple[int, int]) -> None:
    """Check that a loop of one size, or of some in turns, needs no fresh page, which costs ten copies into it."""
    kept, length = form
    if length > 1:
        sizes = [max(n // 16, 2) for n in sizes]
    assert faults(frames(length).sample, sizes, kept) < PAGES


# What a held array costs beside itself: the rest of its last page, and what the C library needs.
BESIDE = 6 << 10
CHOICES = {
    **{f"only {name}": lambda batch, name=name: [batch[name]] for name in ("reward", "obs", "action", "ids")},
    "all": lambda batch: [*batch.values()],
}


@pytest.mark.parametrize("n", [256, 512, 4096, 40_000])
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES.keys())
def test_a_held_part_of_a_batch_costs_about_its_own_size(choose: Callable[..., Any], n: int) -> None:
    """Check that rewards of 2 KB that are kept for a plot do not keep their batches of 95 KB."""
    buffer = rolled(relive.Schema(obs=relive.Field(17), action=relive.Field(6)), 60, 60)
    held = [choose(buffer.sample(n)) for _ in range(3)]
    before = resident()
    held = [choose(buffer.sample(n)) for _ in range(60 if n < 10_000 else 8)]
    parts = [array for part in held for array in part]
    spare = 4 * sum(array.nbytes for array in buffer.sample(n).values())
    taken = (resident() - before) * MB
    assert taken <= 1.05 * sum(array.nbytes for array in parts) + BESIDE * len(parts) + spare
