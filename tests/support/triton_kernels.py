"""Runs the Triton kernels interpreted, beside the ops, and compiles them for devices that are not there.

Triton looks at `TRITON_INTERPRET` when it is imported, so each function here is called in a process of its own.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from typing import Any

import numpy as np
import torch
from device_trees import CAPACITIES, leaves, ring_with_a_life, some_ids, twins
from device_twins import STACKS, Twins, facts, step_that_waits
from no_wait import NoWait

from relive import Anneal, DeviceBuffer, Prioritized, ReliveWarning, Sequences, Transitions, Uniform
from relive._ring import kernels_numpy
from relive.device import (
    _draw,
    _tree,
    _triton_draw,
    _triton_gather,
    _triton_numbers,
    _triton_sequences,
    _triton_update,
    _triton_write,
    _update,
)
from relive.device._random import key_of

# Numbers that a float32 has not.
GAMMA, INITIAL = 0.9, 0.7


def same(*pairs: tuple[Any, Any]) -> None:
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert one.numpy().tobytes() == other.numpy().tobytes()


def shared_prioritized_draws() -> None:
    """Draws that several programs make."""
    _triton_draw.WHOLE = 128
    prioritized_draws((200, 300, 129))
    _triton_draw.WHOLE = 1024


def prioritized_draws(sizes: tuple[int, ...] = (1, 5, 200)) -> None:
    """Prioritized draws of such sizes, weights of every scale, beta moving or given."""
    rng = np.random.default_rng(0)
    betas: list[float | Anneal] = [Anneal(0.3, 0.7, 3), 0.4, 1.0]
    for call, n in enumerate(sizes):
        for clock, capacity in zip((2.0, 3.0), CAPACITIES[3 - call :: 4], strict=True):
            settings = Prioritized(beta=betas[call % 3], weights=("batch", "buffer", "none")[call % 3])
            if call % 2:
                settings = Prioritized(beta=settings.beta, weights=settings.weights, stratified=False)
            tree = twins(capacity, leaves(rng, capacity) if call != 2 else None).tree
            if call == 1:
                tree.state[0] *= 1.5  # a target above the sum: the last positive leaf
            (key, place), draws = key_of(np.random.Philox(call)), torch.tensor([clock, 0.0], dtype=torch.float64)
            place += int(rng.integers(2**40))
            for given in (None, 0.7, torch.tensor(0.6, dtype=torch.float64)):
                place_too, draws_too = place.clone(), draws.clone()
                expected = _draw.prioritized(tree, draws, key, place, n, settings, given)
                drawn = _triton_draw.prioritized(tree, draws_too, key, place_too, n, settings, given)
                same(*zip(drawn, expected, strict=True), (draws_too, draws), (place_too, place))


def uniform_draws(sizes: tuple[int, ...] = (1, 200, 1500)) -> None:
    """Draws of such sizes from queues of anchors, of empty ones too."""
    rng = np.random.default_rng(1)
    for lanes, rows, calls in ((1, 9, 20), (3, 8, 0), (3, 8, 1), (7, 33, 30), (64, 20, 10)):
        ring = ring_with_a_life(rng, lanes, rows, calls)
        places, ends = np.zeros((lanes, rows), np.int32), np.zeros((lanes, 4), np.int64)
        kernels_numpy.Queue(ring.kernel, places, None, ends, np.zeros((lanes, 3), np.int64)).refresh()
        queue = torch.from_numpy(places), torch.from_numpy(ends)
        counts = _draw.running(queue[1])
        same((_triton_draw.running(queue[1]), counts))
        key, place = key_of(np.random.Philox(lanes))
        for n in sizes:
            place_too = place.clone()
            expected = _draw.uniform(*queue, counts, key, place, n)
            same((_triton_draw.uniform(*queue, counts, key, place_too, n), expected), (place_too, place))
    many = torch.from_numpy(rng.integers(0, 9, (9000, 4)))
    same((_triton_draw.running(many), _draw.running(many)))


def shared_updates() -> None:
    """Updates that several programs make."""
    _triton_update.WHOLE = _triton_update.SHARED = 128
    updates((200,))


def updates(sizes: tuple[int, ...] = (1, 200)) -> None:
    """Updates of so many ids: repeated, late, unknown ones, NaN; and sums that are built again."""
    rng = np.random.default_rng(2)
    for lanes, rows in ((1, 9), (7, 300)):
        ring = ring_with_a_life(rng, lanes, rows, 120)
        marks, counters = map(torch.from_numpy, (ring.kernel.marks, ring.kernel.counters))
        tree, late = twins(lanes * rows).tree, torch.zeros(4, dtype=torch.int64)
        tree_too, late_too = twins(lanes * rows).tree, torch.zeros(4, dtype=torch.int64)
        for n in sizes:
            for call in range(4):
                ids = torch.from_numpy(some_ids(rng, ring, n))
                if call:
                    ids = torch.where(_update.locate(marks, counters, rows, ids).unknown, ids.abs() % lanes, ids)
                td = torch.from_numpy(rng.standard_normal(n) * 10.0 ** rng.integers(-9, 9))
                td = td.to((torch.float64, torch.float32, torch.float16)[call % 3])
                if call == 2:
                    td[n // 2] = math.nan
                alpha = 1.0 if call == 3 else 0.6
                ring_of_both = marks, counters, rows, ids, td
                _update.update(tree, *ring_of_both, late, 1e-6, alpha)
                _triton_update.update(tree_too, *ring_of_both, late_too, 1e-6, alpha)
                same((tree_too.nodes, tree.nodes), (tree_too.state, tree.state), (late_too, late))
            slots = torch.from_numpy(rng.integers(0, lanes * rows, n))
            for each in (tree, tree_too):
                each.sums[0][slots] = 0.25
            _tree.rebuild(tree, slots)
            _triton_update.rebuild(tree_too, slots)
            same((tree_too.nodes, tree.nodes), (tree_too.state, tree.state))
        assert (late > 0).all()
        assert tree.state[3] > 0


def buffers() -> None:
    """Whole buffers beside ordinary ones: rings of a few rows, which wrap in mid-call, and of blocks."""
    warnings.simplefilter("ignore", ReliveWarning)
    for capacity, lanes, n, boundaries, sampler, stacks, chunk in (
        (3 * 9, 3, 3, 1 / 16, Prioritized(initial=INITIAL), None, False),
        (3 * 9, 3, 3, 1 / 16, Uniform(), None, True),
        (2, 2, 1, 1.0, Prioritized(), None, False),
        (2 * 4, 2, 1, 0.0, Prioritized(), STACKS[0], True),
        (2 * 5, 2, 2, 0.2, Uniform(), STACKS[1], False),
    ):
        item = Transitions(n_step=n, gamma=GAMMA, chunk=chunk)
        both = Twins(
            capacity, lanes, item=item, sampler=sampler, boundaries=boundaries, kernels="triton", stacks=stacks
        )
        for i in range(16):
            both.add(priority=sampler.prioritizes and i % 5 == 4)
            if i == 11:
                both.cut()
            if i % 3 == 2:
                both.sample(8)
                if sampler.prioritizes:
                    both.update()
                both.assert_same_arrays()
        both.device.check()
        assert facts(both.device) == facts(both.host)
    step_that_waits(Transitions(), 3, "triton")


def sequences() -> None:
    """The same with sequences and recurrent state, also before there is an item."""
    warnings.simplefilter("ignore", ReliveWarning)
    for item, sampler, every, steps, stacks in (
        (Sequences(3, n_step=2, gamma=GAMMA, starts=2), Prioritized(), 2, 12, None),
        (Sequences(2, time_major=True), Uniform(), 1, 6, None),
        (Sequences(2, n_step=2, time_major=True), Uniform(), None, 12, STACKS[2]),
    ):
        choices = {"item": item, "sampler": sampler, "boundaries": 0.2, "every": every, "stacks": stacks}
        empty, both = (Twins(2 * 5, 2, kernels="triton", **choices) for _ in range(2))
        empty.device.add(**empty.step(ends=0.0)[0])
        fields = empty.device._kernels.sample(1, None)
        assert fields.pop(("ids",)).tolist() == [-1]
        assert not any(value.any() for value in fields.values())
        for i in range(steps):
            both.add()
            if i % 6 == 5:
                both.sample(2)
                if sampler.prioritizes:
                    both.update()
        assert both.drawn
        both.assert_same_arrays()
        both.device.check()
        assert facts(both.device) == facts(both.host)


def launch_by(call: Any) -> None:
    """Have all kernels launched by a function."""
    for module in (_triton_draw, _triton_update, _triton_write, _triton_gather, _triton_sequences):
        module.launch = call


def launches() -> None:
    """Count what a turn starts on a device: Triton's kernels, and PyTorch's own."""
    started = [0]

    def count(*_: Any, **__: Any) -> None:
        started[0] += 1

    launch_by(count)
    found = {}
    for sampler, item, every, lanes, stacks in (
        (Uniform(), Transitions(n_step=3), None, 64, None),
        (Prioritized(), Transitions(n_step=3), None, 64, None),
        (Prioritized(), Sequences(3, n_step=2, starts=2), 2, 64, None),
        (Prioritized(), Transitions(), None, 64, STACKS[1]),
        (Prioritized(), Transitions(n_step=3), None, 4096, None),
    ):
        both = Twins(lanes * 250, lanes, item=item, sampler=sampler, every=every, kernels="triton", stacks=stacks)
        step = both.step()[0]
        step["next_obs"] = step.pop("final_obs", step["next_obs"])
        for n in (256, 4096):
            started[0] = 0
            with NoWait() as mode:
                both.device.add(**step)
                batch = both.device.sample(n)
                if sampler.prioritizes:
                    both.device.update_priorities(batch.ids, batch.weights[:, None])
            found[f"{item} {type(sampler).__name__} {lanes} {n}"] = started[0] + mode.launches
    json.dump(found, sys.stdout)


def compiled(backend: str, arch: str, warp: str) -> None:
    """Write the assembly and the LLVM code of every kernel, with the arguments it is launched with, to the output."""
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target, launched = GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp)), {}
    kinds = {torch.float64: "fp64", torch.float32: "fp32", torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8"}

    def note(kernel: Any, programs: int, block: int, *args: Any, **constants: Any) -> None:
        constants["BLOCK"] = block

        def kind(each: Any) -> Any:
            if isinstance(each, tuple):
                return tuple(map(kind, each))
            return "*" + kinds[each.dtype] if isinstance(each, torch.Tensor) else "i32"

        types = list(map(kind, args))
        signature = dict(zip(kernel.arg_names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
        name = f"{kernel.fn.__name__}{'' if programs > 1 or not constants.get('WHOLE', True) else '.whole'}"
        name += ".stacks" if constants.get("HISTORY") else ""
        name += ".chunks" if constants.get("CHUNK") else ""
        if name not in launched:
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            launched[name] = compile(source, target=target, options=_triton_numbers.options_of(block)).asm

    launch_by(note)
    tree, (key, place) = twins(4097).tree, key_of(np.random.Philox(7))
    clock, late = torch.zeros(2, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
    for n in (1024, 5000):
        _triton_draw.prioritized(tree, clock, key, place, n, Prioritized(beta=Anneal(0.4, 1.0, 7)))
        places, ends = torch.zeros((64, 99), dtype=torch.int32), torch.zeros((64, 4), dtype=torch.int64)
        _triton_draw.uniform(places, ends, _triton_draw.running(ends), key, place, n)
        ids, td = torch.zeros(n, dtype=torch.int64), torch.zeros(n)
        marks, counters = torch.zeros((4, 64, 32), dtype=torch.uint8), torch.zeros((64, 16), dtype=torch.int64)
        _triton_update.update(tree, marks, counters, 99, ids, td, late, 1e-6, 0.6)
        _triton_update.rebuild(tree, ids)
    for stacks, chunk in ((None, False), (None, True), (STACKS[1], False)):
        item = Transitions(n_step=3, gamma=GAMMA, chunk=chunk)
        both = Twins(99 * 64, 64, item=item, sampler=Prioritized(initial=INITIAL), stacks=stacks)
        buffer = DeviceBuffer.of(both.host, device="cpu", kernels="triton")
        buffer.add(**both.step()[0], priority=torch.ones(64))
        buffer.sample(4)
        both = Twins(99 * 64, 64, item=Sequences(3, n_step=2, gamma=GAMMA, starts=2), every=2, stacks=stacks)
        buffer = DeviceBuffer.of(both.host, device="cpu", kernels="triton")
        buffer.add(**both.step()[0])
        buffer.sample(4)
    parts = ("ttir", "ptx", "amdgcn", "llir")
    json.dump({name: {part: asm[part] for part in parts if part in asm} for name, asm in launched.items()}, sys.stdout)
