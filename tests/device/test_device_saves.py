"""Saves of a device buffer: to the bit, beside calls, incremental, damaged; and what becomes of it on the host."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG, some
from lockstep_programs import Program
from test_lockstep_laws import fill, small
from test_recency_on_device import SAMPLERS

import relive
from relive.checkpoints.inspection import verify

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")


def assert_same(one: relive.Batch, other: relive.Batch) -> None:
    for name in one:
        if isinstance(one[name], relive.Batch):
            assert_same(one[name], other[name])
        else:
            assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("seed", some(range(12), 3))
def test_a_load_goes_on_to_the_bit(seed: int, tmp_path: Path) -> None:
    """After any program, in a chain of saves; the next turns are those of the buffer that was saved."""
    program = Program(seed, [None, SAMPLERS["by share"], SAMPLERS["blend"], SAMPLERS["in order"]][seed % 4])
    for t in range(120 if LONG else 80):
        program.step()
        program.disturb()
        if t % 13 == 7:
            program.buffer.save(tmp_path, keep=2)
    program.buffer.save(tmp_path)
    assert verify(tmp_path) == []
    other = relive.load(tmp_path, device="cpu")
    assert (len(other), other.sampler) == (len(program.buffer), program.buffer.sampler)
    assert other.stats() == program.buffer.stats().__replace__(effective_sample_size=0.0, age_quantiles=(), beta=0.0)
    every = torch.arange(121 * program.lanes)
    saved, program.buffer = program.buffer, other
    assert_same(saved.read(every), other.read(every))
    for _ in range(30):
        if program.oracle.items():
            batch = saved.sample(16)
            assert_same(batch, other.sample(16))
            if saved.sampler.prioritizes:
                errors = torch.from_numpy(program.rng.normal(size=16))
                for each in (saved, other):
                    each.update_priorities(batch.ids, errors)
        program.step()
        saved.add(**program.given)
    program.look()


def test_later_saves_write_what_is_new(tmp_path: Path) -> None:
    schema = relive.Schema(obs=relive.Field((256,)), action=relive.Field())
    buffer = relive.DeviceBuffer(schema, 4000, num_envs=4, device="cpu")
    no = torch.zeros(4, dtype=torch.bool)
    written = []
    for t in range(600):
        obs = torch.full((4, 256), float(t))
        buffer.add(obs=obs, action=no.float(), reward=no.float(), next_obs=obs + 1, terminated=no, truncated=no)
        if t % 100 == 99:
            written.append(buffer.save(tmp_path).bytes_written)
    assert max(written[1:]) < 2 * min(written)
    again = relive.load(tmp_path, device="cpu")
    again.save(tmp_path)
    assert relive.load(tmp_path, device="cpu").read(torch.tensor([2000])).obs[0, 0] == 500


def test_saves_beside_calls_are_of_one_instant(tmp_path: Path) -> None:
    """A thread saves while another one overwrites the ring again and again: every item of a save is whole."""
    schema = relive.Schema(obs=relive.Field((64,)), action=relive.Field())
    buffer = relive.DeviceBuffer(schema, 160, num_envs=4, device="cpu")
    no, stop = torch.zeros(4, dtype=torch.bool), threading.Event()

    def work() -> None:
        t = 0
        while not stop.is_set():
            obs = torch.full((4, 64), float(t))
            flags = {"terminated": no, "truncated": no}
            buffer.add(obs=obs, action=obs[:, 0], reward=obs[:, 0], next_obs=obs + 1, **flags, continues=True)
            t += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(12 if LONG else 6):
            while not len(buffer):
                pass
            buffer.save(tmp_path)
            found = relive.load(tmp_path, device="cpu")
            stored = found.read(torch.arange(int(found.stats().added)))
            stored = stored.map(lambda values, there=stored.ids >= 0: values[there])
            t = (stored.ids // 4).float()
            assert len(t) == 160 or len(t) == found.stats().added
            assert (stored.obs == t[:, None]).all()
            assert (stored.next_obs == t[:, None] + 1).all()
            assert (stored.reward == t).all()
    finally:
        stop.set()
        thread.join()


def test_autosave_and_its_end(tmp_path: Path) -> None:
    buffer = small(sampler=relive.Prioritized(), seed=0)
    with buffer.autosave(tmp_path, every=0.1):
        fill(buffer, 30, np.random.default_rng(0))
    assert len(relive.load(tmp_path, device="cpu")) == len(buffer)
    with pytest.raises(relive.StorageError, match="saves of another buffer"):
        small().save(tmp_path)


@pytest.mark.parametrize("choice", [{"lanes": [0]}, {"capacity": 8}, {"sampler": relive.Uniform()}], ids=str)
def test_choices_that_a_load_refuses(choice: dict[str, Any], tmp_path: Path) -> None:
    buffer = small(seed=0)
    fill(buffer, 3, np.random.default_rng(0))
    buffer.save(tmp_path)
    with pytest.raises(relive.ArgumentError, match=r"no `.*host"):
        relive.load(tmp_path, device="cpu", **choice)
    with pytest.raises(relive.StorageError, match="device="):
        relive.load(tmp_path)


def test_a_seed_decides_and_begins_anew(tmp_path: Path) -> None:
    runs = []
    for seed in (1, 0, 0):
        buffer = small(sampler=relive.Prioritized(), seed=seed)
        fill(buffer, 20, np.random.default_rng(0))
        runs.append([buffer.sample(8).ids.tolist() for _ in range(3)])
    assert runs[0] != runs[1] == runs[2]
    buffer.save(tmp_path)
    draws = [relive.load(tmp_path, device="cpu", seed=seed).sample(8).ids.tolist() for seed in (None, 5, 5)]
    assert buffer.sample(8).ids.tolist() == draws[0] != draws[1] == draws[2]
