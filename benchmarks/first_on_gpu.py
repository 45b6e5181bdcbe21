"""The first ten minutes with a GPU: `python -m benchmarks.first_on_gpu > first.md`. On a CPU it runs small.

It holds the device's items, sums and captured turns against a CPU's and eager ones, without a wait; counts kernels;
and times turns of an add, a draw and an update, eager and captured, and draws from up to 42 million items.

A captured prioritized turn of 4,096 lanes, batches of 4,096 and n = 3 should take at most .5 ms. If its kernels take
more than 3.5 µs each, compile `sample`; if it is slow beside the learner, the draw and the update deserve kernels of
their own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

import relive

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
TURNS = 20  # in a graph
SIZES = ((1_024, 256, 48), (4_096, 4_096, 48), (4_096, 32_768, 235)) if CUDA else ((64, 64, 48),)
ROWS, REPLAYS = (1_000, 100_000) if CUDA else (50, 100)
SCANS = ((1_024, 1_000), (4_096, 2_500), (4_096, 10_240)) if CUDA else ((64, 100),)


@contextmanager
def without_waits() -> Iterator[None]:
    """Raise where the host waits for a CUDA device."""
    if CUDA:
        torch.cuda.set_sync_debug_mode("error")
    yield
    if CUDA:
        torch.cuda.set_sync_debug_mode("default")


def steps(lanes: int, count: int, obs_size: int = 48, p_end: float = 0.01) -> list[dict[str, Any]]:
    """Make steps that follow each other, the same on every device."""
    source, found = torch.Generator().manual_seed(0), []
    obs = torch.randn(lanes, obs_size, generator=source)
    for _ in range(count):
        final, fresh = (torch.randn(lanes, obs_size, generator=source) for _ in range(2))
        terminated, truncated = (torch.rand(lanes, generator=source) < p_end for _ in range(2))
        after = torch.where((terminated | truncated)[:, None], fresh, final)
        found.append(
            {
                "obs": obs, "action": torch.randn(lanes, 12, generator=source), "final_obs": final, "next_obs": after,
                "reward": torch.randn(lanes, generator=source), "terminated": terminated, "truncated": truncated,
            }
        )  # fmt: skip
        obs = after
    return found


def on(device: str, given: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to(device) for name, value in given.items()} | {"continues": True}


def buffer(lanes: int, rows: int, *, obs_size: int = 48, device: str = DEVICE, **choices: Any) -> relive.DeviceBuffer:
    schema = relive.Schema(obs=relive.Field((obs_size,)), action=relive.Field((12,)))
    return relive.DeviceBuffer(schema, lanes * rows, num_envs=lanes, device=device, seed=0, **choices)


def captured(work: Callable[[], object], turns: int, source: torch.Generator | None) -> Callable[[], object]:
    """Return a graph's replay of so many turns, after a few of them; on a CPU the turns."""
    if not CUDA:
        return lambda: [work() for _ in range(turns)]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    if source is not None:
        graph.register_generator_state(source)
    with torch.cuda.graph(graph):
        for _ in range(turns):
            work()
    return graph.replay


def clock(run: Callable[[], object], turns: int) -> float:
    """Return the microseconds of a turn, of which `run` makes so many."""
    run()
    if CUDA:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(10):
        run()
    if CUDA:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / 10 / turns * 1e6


def turn_of(made: relive.DeviceBuffer, given: Iterator[dict[str, Any]], batch: int, td: Tensor) -> Callable[[], None]:
    def turn() -> None:
        made.add(**next(given))
        drawn = made.sample(batch)
        if made.sampler.prioritizes:
            made.update_priorities(drawn.ids, td)

    return turn


def equal() -> None:
    """Compare the same calls on the CPU and on the device."""
    across = relive.Sequences(8, burn_in=2, n_step=2, across_episodes=True)
    for item in (relive.Transitions(n_step=3), across):
        pair = [buffer(64, 100, item=item, sampler=relive.Prioritized(), device=device) for device in ("cpu", DEVICE)]
        made = steps(64, 300, p_end=0.05)
        ids, td = torch.randint(64 * 210, 64 * 280, (500,)), torch.randn(500)
        found = []
        for each, device in zip(pair, ("cpu", DEVICE), strict=True):
            given, own = [on(device, step) for step in made], (ids.to(device), td.to(device))
            with without_waits():
                for step in given:
                    each.add(**step)
                each.update_priorities(*own)
                each.sample(256)
                found.append(each.read(own[0]))
            each.check()
        for name in ("obs", "next_obs", "action", "reward", "discount", "ids", "steps"):
            one, other = (batch[name].cpu() for batch in found)
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        sums = pair[1]._draws._stretches._sums.clone()  # type: ignore[union-attr]
        pair[1]._draws.restored()
        assert torch.equal(sums, pair[1]._draws._stretches._sums)  # type: ignore[union-attr]
    print("* The device has the CPU's items, its sums are exact, and no call waited.")


def replays() -> None:
    """Compare replays of a captured turn with eager ones."""
    blend = relive.Blend((relive.Prioritized(), 0.5), (relive.Recent(share=0.2), 0.3), (relive.Uniform(), 0.2))
    pair = [buffer(256, 200, item=relive.Transitions(n_step=3), sampler=blend) for _ in range(2)]
    given, td = on(DEVICE, steps(256, 1)[0]), torch.rand(256, device=DEVICE)
    for each in pair * 3:
        each.add(**given)
    turns = [turn_of(each, cycle([given]), 256, td) for each in pair]
    replay = captured(turns[0], 1, pair[0].generator)
    for _ in range(3 if CUDA else 0):  # those before the capture
        turns[1]()
    for _ in range(REPLAYS):
        replay()
        turns[1]()
    one, other = ({**each._ring.tensors(), **each._draws.tensors()} for each in pair)
    assert all(torch.equal(one[name], other[name]) for name in one)
    print(f"* {REPLAYS:,} replays of a captured turn leave what eager turns leave.")


def kernels() -> None:
    """Print the kernels of a turn; `cumsum` may be two."""
    from torch.profiler import ProfilerActivity, profile

    kind = "kernels" if CUDA else "PyTorch's operations"
    print(f"\n| {kind} of an add, a draw and an update | n = 1 | n = 3 |\n|---|---|---|")
    for sampler in (relive.Uniform(), relive.Recent(share=0.2), relive.Prioritized()):
        cells = []
        for n in (1, 3):
            made = buffer(1_024 if CUDA else 64, 100, item=relive.Transitions(n_step=n), sampler=sampler)
            given = cycle([on(DEVICE, step) for step in steps(made.num_envs, 8)])
            turn = turn_of(made, given, 256, torch.rand(256, device=DEVICE))
            for _ in range(20):
                made.add(**next(given))
            turn()
            with profile(activities=[ProfilerActivity.CUDA if CUDA else ProfilerActivity.CPU]) as seen:
                turn()
                if CUDA:
                    torch.cuda.synchronize()
            events = seen.key_averages()
            cells.append(sum(e.count for e in events if not CUDA or "cuda" in str(e.device_type).lower()))
        print(f"| {type(sampler).__name__} | {cells[0]} | {cells[1]} |")


def times() -> None:
    """Print the times of turns."""
    print("\n| µs of a turn: lanes, batch, obs, n | uniform, eager | captured | prioritized, eager | captured |")
    print("|---|---|---|---|---|")
    for lanes, batch, size in SIZES:
        given, td = [on(DEVICE, step) for step in steps(lanes, 8, size)], torch.rand(batch, device=DEVICE)
        for n in (1, 3):
            cells = []
            for sampler in (relive.Uniform(), relive.Prioritized()):
                item = relive.Transitions(n_step=n)
                made = buffer(lanes, ROWS, obs_size=size, item=item, sampler=sampler)
                for step, _ in zip(cycle(given), range(ROWS + 4), strict=False):
                    made.add(**step)
                turn = turn_of(made, cycle(given), batch, td)
                cells.append(clock(turn, 1))
                cells.append(clock(captured(turn, TURNS, made.generator), TURNS))
            print(f"| {lanes:,}, {batch:,}, {size}, {n} | {' | '.join(f'{cell:.0f}' for cell in cells)} |")


def scans() -> None:
    """Print the times of draws from many items."""
    print("\n| items | µs of a prioritized draw of 4,096, captured |\n|---|---|")
    for lanes, rows in SCANS:
        made = buffer(lanes, rows, obs_size=1, sampler=relive.Prioritized())
        step = on(DEVICE, steps(lanes, 1, 1)[0])
        for _ in range(rows):
            made.add(**step)
        cell = clock(captured(lambda made=made: made.sample(4_096), TURNS, made.generator), TURNS)  # type: ignore[misc]
        print(f"| {lanes * rows:,} | {cell:.0f} |")


if __name__ == "__main__":
    where = torch.cuda.get_device_name() if CUDA else "a CPU, which says nothing about a GPU"
    print(f"On {where}, torch {torch.__version__}:\n")
    warnings.simplefilter("ignore", relive.ReliveWarning)  # episodes are short
    for part in (equal, replays, kernels, times, scans):
        part()
