"""`Transitions(chunk=True)`: by hand, in files of other items, and in everything that passes batches on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.testing.agreement import assert_same_batch

K = 3
SINGLE, CHUNKS = relive.Transitions(n_step=K, gamma=0.5), relive.Transitions(n_step=K, gamma=0.5, chunk=True)
SCHEMA = relive.Schema(
    obs=relive.Field(), action={"arm": relive.Field(2), "grip": relive.Field((), "int8")}, note=relive.Field()
)


def make(item: relive.Item = CHUNKS, **choices: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(SCHEMA, 200, num_envs=2, item=item, seed=0, **choices)


def lived(item: relive.Item = CHUNKS, **choices: Any) -> relive.ReplayBuffer:
    buffer = make(item, **choices)
    extend(buffer, 20)
    return buffer


def extend(buffer: relive.ReplayBuffer, steps: int) -> np.ndarray:
    """Step t of lane l has the action t + 100 l and the reward t; an end every nine steps, of either kind in turn."""
    t = np.broadcast_to(np.arange(float(steps)), (2, steps))
    number = t + np.array([[0], [100]])
    action = {"arm": np.stack([number, -number], -1), "grip": number.astype("int8")}
    ends = {"terminated": t % 18 == 8, "truncated": t % 18 == 17}
    return buffer.extend(obs=t, next_obs=t + 1, action=action, reward=t, note=number, **ends)


def test_a_chunk_has_the_actions_of_its_window_and_zeros_behind() -> None:
    buffer = make()
    ids = extend(buffer, 20)
    buffer.cut([0])
    batch = buffer.read([*ids[1, [4, 7, 8, 17]], ids[0, 18]])
    arm = np.array([[104, 105, 106], [107, 108, 0], [108, 0, 0], [117, 0, 0], [18, 19, 0]], "float32")
    np.testing.assert_array_equal(batch.action.arm, np.stack([arm, -arm], -1))
    np.testing.assert_array_equal(batch.action.grip, arm.astype("int8"))
    np.testing.assert_array_equal(batch.mask, arm != 0)
    assert (batch.action.arm.dtype, batch.action.grip.dtype, batch.mask.dtype) == (np.float32, np.int8, np.bool_)
    assert batch.steps.tolist() == [3, 2, 1, 1, 2]
    assert batch.reward.tolist() == [4 + 5 / 2 + 6 / 4, 7 + 8 / 2, 8, 17, 18 + 19 / 2]
    assert batch.discount.tolist() == [0.125, 0, 0, 0.5, 0.25]
    assert batch.next_obs.tolist() == [7, 9, 9, 18, 20]
    assert batch.note.tolist() == [104, 107, 108, 117, 18]


def test_actions_of_a_window_lie_together() -> None:
    """Check that one copy gets them; otherwise they share the record of their step."""
    for item, apart in ((CHUNKS, True), (SINGLE, False), (relive.Transitions(chunk=True), False)):
        ring = make(item)._core.ring
        actions = [
            array for column, array in zip(SCHEMA.columns, ring.columns, strict=True) if column.keys[0] == "action"
        ]
        assert [array.flags.c_contiguous for array in actions] == [apart] * 2


def facts_of(path: Path) -> dict[str, Any]:
    (manifest,) = path.glob("*.json")
    return json.loads(manifest.read_text())["choices"]


def test_saves_of_other_items_are_what_they_were(tmp_path: Path) -> None:
    """Check that versions before chunks read them."""
    lived(SINGLE).save(tmp_path / "single")
    lived(CHUNKS).save(tmp_path / "chunks")
    single, chunks = facts_of(tmp_path / "single"), facts_of(tmp_path / "chunks")
    assert single["item"] == {"kind": "Transitions", "n_step": K, "gamma": 0.5}
    assert single["window"].keys() == {"span", "lookback", "starts", "across"}
    lived(relive.Sequences(3)).save(tmp_path / "sequences")
    assert "step_ids" not in facts_of(tmp_path / "sequences")["item"]
    assert chunks["item"] == {**single["item"], "chunk": True}
    assert chunks["window"] == {**single["window"], "actions": True}
    for item, new in ((SINGLE, False), (CHUNKS, True)):
        with make(item, storage=relive.Mapped(tmp_path / f"ring {new}")):
            words = (tmp_path / f"ring {new}").read_bytes()
        assert (b'"chunk"' in words, b'"actions"' in words) == (new, new)


@pytest.mark.parametrize(("saved", "loaded"), [(CHUNKS, None), (SINGLE, CHUNKS), (CHUNKS, SINGLE)])
def test_a_save_is_loaded_as_either(tmp_path: Path, saved: relive.Item, loaded: relive.Item | None) -> None:
    lived(saved, sampler=relive.Prioritized()).save(tmp_path / "saved")
    found = relive.load(tmp_path / "saved", item=loaded)
    wanted = lived(loaded or saved, sampler=relive.Prioritized())
    assert found.item == wanted.item
    for _ in range(2):
        assert_same_batch(found.sample(32), wanted.sample(32))
        for buffer in (found, wanted):
            extend(buffer, 30)


def test_a_mapped_file_is_opened_with_either(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    ids = np.arange(16)
    with lived(CHUNKS, storage=relive.Mapped(path)) as buffer:
        wanted, other = buffer.read(ids), lived(SINGLE).read(ids)
    with relive.open(path) as taken:
        assert taken.item == CHUNKS
        assert_same_batch(taken.read(ids), wanted)
    with relive.open(path, item=SINGLE) as taken:
        assert_same_batch(taken.read(ids), other)
        extend(taken, 5)
        taken.sample(8)


def test_the_name_of_the_mask_is_taken() -> None:
    with pytest.raises(relive.SchemaError, match=r"got `mask` - at `mask`"):
        relive.Schema(obs=relive.Field(), action=relive.Field(), mask=relive.Field())
