"""A device buffer keeps the arrays of an ordinary one, draws what it draws, and becomes one and back."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from depth import eventually, pairs
from device_twins import STACKS, Twins, facts, step_that_waits

import relive
from relive.device import _twin

ANNEALED = relive.Prioritized(beta=relive.Anneal(0.4, 1.0, 10))
SAMPLERS = {
    "uniform": relive.Uniform(),
    "prioritized": ANNEALED,
    "of the buffer": relive.Prioritized(alpha=1.0, weights="buffer", stratified=False, initial=3.0),
    "unscaled": relive.Prioritized(alpha=0.0, beta=1.0, weights="none"),
}
# Steps, lanes, n, boundaries: a wrap in mid-block, several blocks, lanes of a few rows, of one, more rows than steps.
SHAPES = [(7 * 33, 7, 3, 1 / 16), (64 * 40, 64, 5, 1 / 16), (8, 1, 1, 0.0), (24, 3, 2, 1.0), (6, 2, 1, 0.0),
          (1, 1, 1, 1.0)]  # fmt: skip
# Steps, lanes, boundaries, the item, the sampler, at how many steps a recurrent state is kept.
CASES: list[tuple[int, int, float, relive.Transitions | relive.Sequences, str, int | None]] = [
    (capacity, lanes, boundaries, relive.Transitions(n_step=n, gamma=0.9), sampler, 1 if n == 2 else None)
    for capacity, lanes, n, boundaries in SHAPES
    for sampler in SAMPLERS
]
CASES += [
    (
        64 * 40,
        64,
        1 / 16,
        relive.Sequences(11, n_step=3, gamma=0.9, starts=4, step_ids=True),
        "prioritized",
        2,
    ),
    (7 * 33, 7, 1 / 16, relive.Sequences(5, time_major=True, step_ids=True), "uniform", 1),
    (3 * 6, 3, 1.0, relive.Sequences(3, n_step=3, starts=3, time_major=True), "of the buffer", 3),
    (2 * 6, 2, 0.0, relive.Sequences(2, n_step=2, starts=2), "uniform", 2),
    (4, 2, 0.0, relive.Sequences(1), "unscaled", None),
]


CHUNKS = [
    (7 * 33, 7, 1 / 16, relive.Transitions(n_step=4, gamma=0.9, chunk=True), "prioritized", None),
    (3 * 6, 3, 1.0, relive.Transitions(n_step=2, chunk=True), "uniform", 1),
    (6, 2, 0.0, relive.Transitions(chunk=True), "of the buffer", None),
]
CASES += CHUNKS
STACKED: list[tuple[int, int, float, relive.Transitions | relive.Sequences, str, int | None]] = [
    (7 * 33, 7, 1 / 16, relive.Transitions(n_step=3, gamma=0.9), "prioritized", None),
    (64 * 20, 64, 1 / 16, relive.Transitions(), "uniform", 1),
    (4, 1, 0.0, relive.Transitions(), "of the buffer", None),
    (3 * 6, 3, 1.0, relive.Transitions(n_step=2, chunk=True), "uniform", None),
    (2 * 12, 2, 0.2, relive.Sequences(5, n_step=2, starts=2), "prioritized", 2),
    (5 * 20, 5, 1 / 16, relive.Sequences(3, time_major=True), "uniform", None),
]


def program(twins: Twins, steps: int, every: int | None) -> None:
    """Random calls; arrays are compared after `every` steps. Those of a save have stored rows alone."""
    for i in range(steps):
        twins.add(priority=twins.device.sampler.prioritizes and twins.rng.random() < 0.1)
        if twins.rng.random() < 0.03:
            twins.cut()
        if twins.rng.random() < 0.01:
            twins.clear()
        if i % 3 == 0:
            twins.sample(32)
        if i % 5 == 0:
            twins.write()
        if twins.device.sampler.prioritizes and i % 4 == 0:
            twins.update()
            twins.sample(9, beta=0.7)
        if every and i % every == every - 1:
            twins.assert_same_arrays()


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(("capacity", "lanes", "boundaries", "item", "sampler", "every"), CASES)
def test_arrays_and_draws(
    capacity: int, lanes: int, boundaries: float, item: relive.Item, sampler: str, every: int | None
) -> None:
    twins = Twins(capacity, lanes, boundaries=boundaries, item=item, sampler=SAMPLERS[sampler], every=every)
    program(twins, 80, 20)
    twins.device.check()
    assert facts(twins.device) == facts(twins.host)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(("case", "stacks"), pairs(STACKED, STACKS))
def test_stacks(case: tuple[int, int, float, relive.Item, str, int | None], stacks: Any) -> None:
    """Of the same arrays, whose rows have a frame each."""
    capacity, lanes, boundaries, item, sampler, every = case
    choices = {"boundaries": boundaries, "item": item, "sampler": SAMPLERS[sampler], "every": every}
    twins = Twins(capacity, lanes, stacks=stacks, **choices)
    program(twins, 80, 20)
    twins.device.check()
    assert facts(twins.device) == facts(twins.host)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(
    ("sampler", "item", "every", "stacks"),
    [
        ("uniform", relive.Transitions(n_step=3), None, None),
        ("prioritized", relive.Transitions(n_step=3), None, None),
        ("prioritized", relive.Sequences(6, n_step=2, starts=2), 2, None),
        ("prioritized", relive.Transitions(n_step=2), 1, STACKS[1]),
    ],
)
def test_there_and_back(sampler: str, item: relive.Item, every: int | None, stacks: Any, tmp_path: Path) -> None:
    """Copied to the host, saved, loaded, copied to a device: every step of the way draws on as the others do."""
    twins = Twins(7 * 33, 7, item=item, sampler=SAMPLERS[sampler], every=every, stacks=stacks)
    program(twins, 100, 50)
    twins.host = twins.device.host()
    program(twins, 40, 20)
    twins.device.save(tmp_path)
    twins.host = relive.load(tmp_path)
    program(twins, 40, None)
    twins.host.save(tmp_path)
    twins.device = relive.load(tmp_path, device="cpu")
    program(twins, 40, None)
    twins.device = relive.DeviceBuffer.of(twins.host, device="cpu")
    program(twins, 40, 20)
    assert facts(twins.device) == facts(twins.host)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
def test_later_saves_write_what_is_new(tmp_path: Path) -> None:
    twins = Twins(64 * 500, 64)
    for _ in range(200):
        twins.add()
    device, first = twins.device, twins.device.save(tmp_path)
    for _ in range(2):
        twins.add()
        more = device.save(tmp_path)
        assert more.bytes_written < first.bytes_written / 5
        device = twins.device = relive.load(tmp_path, device="cpu")
    assert more.number == first.number + 2
    assert facts(device) == facts(twins.host)


def test_an_interrupted_copy_holds_no_call_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    twins = Twins(4 * 8, 4)
    for _ in range(20):
        twins.add()
    with monkeypatch.context() as patched:
        patched.setattr(_twin.Twin, "follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            twins.device.save(tmp_path)
    thread = threading.Thread(target=lambda: [twins.device.cut() for _ in range(9)], daemon=True)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive()
    twins.device.save(tmp_path)
    assert facts(relive.load(tmp_path)) == facts(twins.device)


@pytest.mark.parametrize("prioritized", [False, True])
def test_saves_beside_a_learner(prioritized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread saves is one instant, though the ring is written over many times while its rows are copied."""
    monkeypatch.setattr(_twin, "PORTION", 1 << 9)
    schema = relive.Schema(obs=relive.Field((4,), "int64"), action=relive.Field((), "int64"))
    sampler = relive.Prioritized(alpha=1.0, eps=0.0) if prioritized else relive.Uniform()
    buffer = relive.DeviceBuffer(schema, 4 * 32, num_envs=4, sampler=sampler, device="cpu", boundaries=0.25)
    fetch = _twin._Transfer._fetched

    def slowly(self: Any, *args: Any) -> Any:
        time.sleep(0.004)
        return fetch(self, *args)

    monkeypatch.setattr(_twin._Transfer, "_fetched", slowly)
    no, each, step = torch.zeros(4, dtype=torch.bool), torch.arange(4), 0
    errors: list[BaseException] = []

    def learn() -> None:
        nonlocal step
        try:
            while step < 20_000 and not done.is_set():
                obs = (step * 4 + each)[:, None].expand(4, 4)
                ends = (no | True) if step % 7 == 6 else no
                fields = {"obs": obs, "action": obs[:, 0], "reward": torch.ones(4), "next_obs": obs + 4}
                ids = buffer.add(**fields, terminated=ends, truncated=no)
                if prioritized:
                    buffer.update_priorities(ids, torch.full((4,), step + 1.0))
                step += 1
        except BaseException as error:
            errors.append(error)

    done, learner = threading.Event(), threading.Thread(target=learn)
    learner.start()
    try:
        eventually(lambda: step > 50)
        began = step
        for _ in range(5):
            before, number = step, buffer.save(tmp_path, wait=False).wait().number
            loaded = relive.load(tmp_path)
            batch = next(loaded.batches(1000, shuffle=False))
            newest = int(batch.action.max()) // 4
            assert before - 1 <= newest <= step
            assert len(loaded) == len(batch.ids) == 4 * 32
            assert sorted(batch.action) == list(range((newest - 31) * 4, (newest + 1) * 4))
            assert (batch.obs == batch.action[:, None]).all()
            assert (batch.next_obs == batch.action[:, None] + 4).all()
            if prioritized:
                assert set(loaded.priorities(batch.ids) - 1) <= {*(batch.action // 4), newest - 1}
        assert (number, step > began + 5) == (5, True)
    finally:
        done.set()
        learner.join()
    assert not errors


@pytest.mark.parametrize("item", [relive.Transitions(), relive.Sequences(2)])
@pytest.mark.parametrize("stack", [None, 2, 3])
def test_a_step_that_waits_for_its_successor(item: relive.Item, stack: int | None) -> None:
    step_that_waits(item, stack, "ops")


def test_of_other_generators_and_storages(tmp_path: Path) -> None:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    for storage in (relive.Ram(), relive.Mapped(tmp_path / "steps")):
        host = relive.ReplayBuffer(schema, 8, storage=storage, seed=0)
        host.add(obs=1.0, action=0.0, reward=2.0, next_obs=3.0, terminated=False, truncated=False)
        device = relive.DeviceBuffer.of(host, device="cpu", seed=5)
        assert device.sample(3).reward.tolist() == [2.0] * 3
    with pytest.raises(relive.ArgumentError, match="without a limiter"):
        relive.DeviceBuffer.of(
            relive.ReplayBuffer(schema, 8, limiter=relive.RateLimiter(1.0, min_size=1)), device="cpu"
        )


def test_bytes_of_a_transition() -> None:
    """Next to a class that keeps both observations, flags as int64 and the rest, as loops on GPUs have it."""
    obs, action, lanes, steps = 235, 12, 16, 2048
    schema = relive.Schema(obs=relive.Field((obs,)), action=relive.Field((action,)))
    by_hand = 4 * (2 * obs + action + 1) + 2 * 8
    buffer = relive.DeviceBuffer(schema, lanes * steps, num_envs=lanes, device="cpu")
    own = sum(tensor.nbytes for name, tensor in buffer._state.arrays().items() if name.startswith("ring/"))
    assert own / (lanes * steps) <= 0.55 * by_hand
