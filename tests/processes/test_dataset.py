"""`ReplayBuffer.dataset`: what `sample` draws, in a loader, its workers, and after a break."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, pairs
from needs import needs

needs("torch")
import torch
from torch.utils.data import DataLoader

import relive
from relive.errors import ArgumentError

SCHEMA = relive.Schema(obs={"a": relive.Field(2), "b": relive.Field((), "uint8")}, action=relive.Field())
ITEMS = {
    "transitions": relive.Transitions(n_step=3),
    "windows": relive.Windows(obs=(-1, 0), action=range(4)),
    "sequences": relive.Sequences(4, n_step=2),
}


def filled(item: relive.Item = ITEMS["windows"], seed: int = 0, **choices: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(SCHEMA, 200, item=item, seed=seed, **choices)
    time = np.arange(100.0)
    obs = {"a": np.stack([time, -time], -1), "b": (time % 200).astype("uint8")}
    nexts = {"a": np.stack([time + 1, -time - 1], -1), "b": ((time + 1) % 200).astype("uint8")}
    buffer.extend(
        obs=obs, action=time, reward=time, next_obs=nexts, terminated=time % 25 == 24, truncated=np.zeros(100, bool)
    )
    return buffer


def same(batch: Any, wanted: relive.Batch) -> None:
    assert list(batch) == list(wanted)
    for name in wanted:
        if isinstance(wanted[name], np.ndarray):
            np.testing.assert_array_equal(batch[name].numpy(), wanted[name], err_msg=name)
        else:
            same(batch[name], wanted[name])


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_without_workers_it_is_sample(item: relive.Item) -> None:
    twin, loader = filled(item), DataLoader(filled(item).dataset(8, batches=5), batch_size=None)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == 5
        for batch in batches:
            assert type(batch) is relive.Batch
            same(batch, twin.sample(8))


def test_a_transform_gets_numbers_of_its_own() -> None:
    def noisy(batch: relive.Batch, rng: np.random.Generator) -> relive.Batch:
        return relive.Batch({**batch, "action": batch.action + rng.standard_normal(batch.action.shape)})

    (got,) = filled().dataset(8, batches=1, transform=noisy)
    with filled().prefetch(8, transform=noisy) as ahead:
        same(got, next(ahead))


def test_it_goes_on_where_it_stood() -> None:
    wanted = [batch.ids.tolist() for batch in filled().dataset(8, batches=5)]
    first = filled().dataset(8, batches=5)
    batches = iter(first)
    got = [next(batches).ids.tolist() for _ in range(2)]
    state = first.state_dict()
    later = filled(seed=9).dataset(8, batches=5)
    later.load_state_dict(state)
    assert got + [batch.ids.tolist() for batch in later] == wanted
    assert len(list(later)) == 5


def test_a_break_is_no_pause() -> None:
    data = filled().dataset(8, batches=5)
    for _ in data:
        break
    assert len(list(data)) == 5


def drawn(buffer: relive.ReplayBuffer, start: str, workers: int = 2, batches: int = 5) -> list[Any]:
    torch.manual_seed(3)
    data = buffer.dataset(8, batches=batches)
    if start == "spawn" and not LONG:  # which imports PyTorch, seconds for each worker: what it gets is seen without
        data, start = pickle.loads(pickle.dumps(data)), "fork"
    loader = DataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context=start)
    found = list(loader)
    assert len(found) == batches
    for batch in found:
        same(batch, buffer.read(batch.ids.numpy()))
    return [batch.ids.tolist() for batch in found]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("storage", "start"), pairs(["shared", "mapped"], ["spawn", "fork"]))
def test_workers_open_the_buffer_by_name(storage: str, start: str, tmp_path: Path) -> None:
    where = relive.Shared() if storage == "shared" else relive.Mapped(tmp_path / "ring")
    with filled(storage=where) as buffer:
        ids = drawn(buffer, start)
        assert ids[0] != ids[1]
        assert ids == drawn(buffer, start)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("storage", [relive.Ram, relive.Shared])
def test_workers_that_persist_draw_other_batches_in_the_next_epoch(storage: Any) -> None:
    with filled(storage=storage()) as buffer:
        loader = DataLoader(
            buffer.dataset(8, batches=4), None, num_workers=2, multiprocessing_context="fork", persistent_workers=True
        )
        epochs = [[batch.ids.tolist() for batch in loader] for _ in range(2)]
        assert [len(epoch) for epoch in epochs] == [4, 4]
        assert epochs[0] != epochs[1]
        assert epochs[0][0] != epochs[0][1], "which two workers drew"
        loader._iterator._shutdown_workers()


def test_workers_started_anew_do_not() -> None:
    loader = DataLoader(filled().dataset(8), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(
        ArgumentError, match=r"^Expected a storage that other processes open, got `Ram\(\)`.*Shared\(\)"
    ):
        next(iter(loader))
