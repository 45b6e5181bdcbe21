"""rlpyt's replay buffers as argument lists: its 20 concrete classes, and the 12 that it never wrote.

The names are rlpyt's; `Tl` (time limits) with frames or sequences, plain or `Async`, are those it lacks. Each is built,
lives through random episodes, and is compared with the model: what can be drawn, every field of every item, and
priorities that follow updates.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import oracle_items
import pytest
from oracle import OracleBuffer
from oracle_stacks import tree_map
from synthetic import BOTH, GO, JUMP, MIDWAY, STAY, TERMINATED, TRUNCATED, Script, World, stacks_of

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
LANES, ROWS, N, GAMMA, ALPHA = 3, 40, 3, 0.95, 0.6
LENGTH, BURN_IN, INTERVAL = 5, 4, 4

IN_RLPYT = {
    prefix + name
    for prefix in ("", "Async")
    for name in (
        "UniformReplayBuffer",
        "TlUniformReplayBuffer",
        "PrioritizedReplayBuffer",
        "TlPrioritizedReplayBuffer",
        "UniformReplayFrameBuffer",
        "PrioritizedReplayFrameBuffer",
        "UniformSequenceReplayBuffer",
        "PrioritizedSequenceReplayBuffer",
        "UniformSequenceReplayFrameBuffer",
        "PrioritizedSequenceReplayFrameBuffer",
    )
}


@dataclass(frozen=True)
class Cell:
    """One class, by what distinguishes it from the others."""

    shared: bool
    time_limits: bool
    prioritized: bool
    sequences: bool
    frames: bool

    @property
    def name(self) -> str:
        """rlpyt's name, or what it would be."""
        drawn = "Prioritized" if self.prioritized else "Uniform"
        kind = ("Sequence" if self.sequences else "") + "Replay" + ("Frame" if self.frames else "")
        return ("Async" if self.shared else "") + ("Tl" if self.time_limits else "") + drawn + kind + "Buffer"

    @property
    def schema(self) -> dict[str, relive.Field]:
        """Frames are stacked fields, recurrent state is kept at every start; time limits need nothing."""
        obs = relive.Field((4, 5), "uint8", stack=4) if self.frames else relive.Field((3,), "float32")
        state = {"state": relive.Field((6,), every=INTERVAL)} if self.sequences else {}
        return {"obs": obs, "action": relive.Field((), "int64"), **state}

    @property
    def item(self) -> Any:
        if not self.sequences:
            return relive.Transitions(n_step=N, gamma=GAMMA)
        return relive.Sequences(
            length=LENGTH, burn_in=BURN_IN, n_step=N, gamma=GAMMA, starts=INTERVAL, across_episodes=True
        )

    @property
    def sampler(self) -> Any:
        return relive.Prioritized(alpha=ALPHA, eps=0.0) if self.prioritized else relive.Uniform()

    def build(self) -> relive.ReplayBuffer:
        return relive.ReplayBuffer(
            relive.Schema(**self.schema),
            capacity=LANES * ROWS,
            num_envs=LANES,
            item=self.item,
            sampler=self.sampler,
            storage=relive.Ram(),
            seed=7,
        )

    def model(self) -> OracleBuffer:
        item: Any = oracle_items.Transitions(N, GAMMA)
        if self.sequences:
            item = oracle_items.Sequences(LENGTH + BURN_IN, N, GAMMA, INTERVAL, True, ("state",))
        return OracleBuffer(LANES, ROWS, item, stacks=stacks_of(self.schema["obs"]))


CELLS = {cell.name: cell for cell in (Cell(*choice) for choice in product((False, True), repeat=5))}
MISSING = sorted(set(CELLS) - IN_RLPYT)


def test_the_cells_are_rlpyts_classes_and_the_twelve_it_lacks() -> None:
    assert len(CELLS) == 32
    assert len(IN_RLPYT) == 20
    assert set(CELLS) >= IN_RLPYT
    assert (
        sorted(
            f"{prefix}Tl{drawn}{kind}Buffer"
            for prefix in ("", "Async")
            for drawn in ("Uniform", "Prioritized")
            for kind in ("ReplayFrame", "SequenceReplay", "SequenceReplayFrame")
        )
        == MISSING
    )


@pytest.mark.parametrize("given", ["next_obs given", "next_obs left out"])
@pytest.mark.parametrize("name", [*sorted(IN_RLPYT), *MISSING])
def test_every_class(name: str, given: str) -> None:
    """Three laps of random episodes; a cell without time limits knows only terminations, as rlpyt's do."""
    cell, rng = CELLS[name], np.random.default_rng(len(name))
    buffer, oracle, world = cell.build(), cell.model(), World(cell.schema, LANES)
    ends = [TERMINATED, TRUNCATED, BOTH] if cell.time_limits else [TERMINATED]
    seen: set[tuple[bool, bool]] = set()
    for call in range(3 * ROWS // 6):
        script = Script(
            flags=rng.choice([GO] * 18 + ends, 29).tolist(),
            moves=rng.choice([STAY] * 30 + [JUMP, MIDWAY], 31).tolist(),
            give_next=given == "next_obs given",
            priorities=rng.uniform(0, 3, 13).tolist() if cell.prioritized and call % 2 else None,
        )
        told, ids = world.live(oracle, list(range(LANES)), 6, script)
        np.testing.assert_array_equal(buffer.extend(**told), ids)
        compare(buffer, oracle)
        if buffer.can_sample(8):
            seen |= draw(buffer, oracle, cell, rng)
    assert len(oracle.priority) > 10
    assert (True, False) in seen
    assert ((False, True) in seen) is cell.time_limits


def compare(buffer: relive.ReplayBuffer, oracle: OracleBuffer) -> None:
    """The drawable set and all its items."""
    items = oracle.items()
    assert buffer.stats().drawable == len(items)
    if items:
        assert_same(buffer.read(list(items)), list(items.values()))
    for key in oracle.silent_ids():
        with pytest.raises(relive.errors.StaleId):
            buffer.read([key])


def assert_same(batch: relive.Batch, items: list[dict[str, Any]]) -> None:
    assert set(batch) == {*items[0], "ids", "weights"}
    for name in items[0]:
        want = np.stack([np.asarray(item[name]) for item in items])
        if batch[name].dtype.kind == "f":
            np.testing.assert_allclose(batch[name], want, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(batch[name], want, err_msg=name)


def draw(buffer: relive.ReplayBuffer, oracle: OracleBuffer, cell: Cell, rng: Any) -> set[tuple[bool, bool]]:
    """One batch: its items, and, where there are priorities, its weights and an update of them."""
    batch = buffer.sample(8)
    items = oracle.items()
    assert_same(batch, [items[key] for key in batch.ids.tolist()])
    if cell.prioritized:
        raw = np.array([oracle.priority[key] for key in batch.ids.tolist()])
        weights = raw ** (-ALPHA * cell.sampler.beta)
        np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)
        td = rng.normal(size=8)
        assert buffer.update_priorities(batch.ids, td) == oracle.update(batch.ids.tolist(), np.abs(td).tolist())
        want = [oracle.priority[key] for key in oracle.anchors()]
        np.testing.assert_allclose(buffer.priorities(oracle.anchors()), want, rtol=1e-9)
    else:
        assert (batch.weights == 1).all()
    flags = zip(batch.terminated.ravel().tolist(), batch.truncated.ravel().tolist(), strict=True)
    return set(flags)


@pytest.mark.parametrize("name", [name for name in CELLS if CELLS[name].shared])
def test_the_asynchronous_ones_draw_while_others_write(name: str) -> None:
    """One thread adds, another draws and updates; in the end the buffer is what it would be without the other."""
    cell = CELLS[name]
    buffer, oracle, world = cell.build(), cell.model(), World(cell.schema, LANES)
    script = Script([GO] * 9 + [TERMINATED] + [GO] * 7 + [TRUNCATED], [STAY], give_next=True)
    calls = [world.live(oracle, list(range(LANES)), 1, script) for _ in range(120)]
    done, faults = threading.Event(), []

    def read() -> None:
        try:
            while not done.is_set():
                if buffer.can_sample(8):
                    batch = buffer.sample(8)
                    if cell.prioritized:
                        buffer.update_priorities(batch.ids, np.ones(8))
        except Exception as error:
            faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for told, ids in calls:
        np.testing.assert_array_equal(buffer.add(**tree_map(lambda value: value[:, 0], told)), ids[:, 0])
    done.set()
    reader.join()
    assert not faults
    compare(buffer, oracle)
