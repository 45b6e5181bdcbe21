"""Values that are written back: on the step with that id and on no other, saved, loaded, copied and refused."""

from __future__ import annotations

import copy
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG

import relive
from relive import Field
from relive._ring import kernels
from relive.errors import ArgumentError, SchemaError, StaleId

LANES, EVERY = 3, 2
SCHEMA = relive.Schema(
    obs=Field((2,)),
    action=Field((), "int64"),
    reward=Field(writable=True),
    value=Field((), "float64", writable=True),
    nest={"latent": Field((3,), writable=True), "scratch": Field((40,), "int16", writable=True, saved=False)},
    state=Field((2,), every=EVERY, writable=True),
)
WIDTHS = {("reward",): (), ("value",): (), ("nest", "latent"): (3,), ("nest", "scratch"): (40,), ("state",): (2,)}


class Model:
    """A buffer, and what each of its steps has by id: written twice, once as a user does and once into a dictionary."""

    def __init__(self, seed: int, storage: Any = None, path: Path | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.every = bool(self.rng.integers(2))
        item = relive.Sequences(2, starts=EVERY) if self.every else relive.Transitions()
        schema = SCHEMA if self.every else relive.Schema(**{k: v for k, v in SCHEMA.tree.items() if k != "state"})
        self.buffer = relive.ReplayBuffer(
            schema, LANES * int(self.rng.integers(6, 30)), num_envs=LANES, item=item, storage=storage, seed=0,
            sampler=relive.Prioritized(),
        )  # fmt: skip
        self.path, self.values, self.next = path, {key: {} for key in self.keys}, np.zeros((LANES, 2), np.float32)

    @property
    def keys(self) -> list[tuple[str, ...]]:
        return [key for key in WIDTHS if self.every or key != ("state",)]

    def drawn(self, keys: tuple[str, ...], *lead: int) -> np.ndarray:
        values = self.rng.integers(-100, 100, (*lead, *WIDTHS[keys]))
        return values.astype(np.int16 if keys[-1] == "scratch" else np.float64 if keys == ("value",) else np.float32)

    def nested(self, values: dict[tuple[str, ...], np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keys, each in values.items():
            place = found
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = each
        return found

    def add(self) -> None:
        given = {keys: self.drawn(keys, LANES) for keys in self.keys}
        obs, self.next = self.next, self.rng.standard_normal((LANES, 2)).astype(np.float32)
        ends = self.rng.random(LANES) < 0.1
        ids = self.buffer.add(
            obs=obs, action=np.arange(LANES), next_obs=self.next, terminated=ends, truncated=np.zeros(LANES, bool),
            **self.nested(given),
        )  # fmt: skip
        self.next = np.where(ends[:, None], np.float32(0), self.next)
        for keys, each in given.items():
            self.values[keys].update(zip(ids.tolist(), each, strict=True))

    def write(self) -> None:
        """Ids of every state and shape, some of them several times; some of the fields."""
        every = np.array(sorted(self.values["reward",]))
        size = (int(self.rng.integers(1, 5)), int(self.rng.integers(1, 6)))
        ids = every[np.maximum(len(every) - 1 - self.rng.geometric(0.02, size), 0)]
        if self.every:  # those at which items start, for the state that is kept there alone
            starts = self.starts
            ids = starts[self.rng.integers(len(starts), size=size)] if len(starts) else ids[:0]
        ids = np.where(self.rng.random(ids.shape) < 0.2, -1, ids)
        chosen = [keys for keys in self.keys if self.rng.random() < 0.6] or self.keys[:1]
        given = {keys: self.drawn(keys, *ids.shape) for keys in chosen}
        there = self.there
        assert self.buffer.write(ids, **self.nested(given)) == np.isin(ids, there).sum()
        for keys, each in given.items():
            for id_, value in zip(ids.reshape(-1).tolist(), each.reshape(-1, *WIDTHS[keys]), strict=True):
                if id_ >= 0:
                    self.values[keys][id_] = value

    @property
    def there(self) -> np.ndarray:
        """The ids of all stored steps."""
        ids = self.buffer.column("ids")
        return ids[ids >= 0]

    @property
    def starts(self) -> np.ndarray:
        """Those of them at which items may start: at every other step of a lane, which cuts and ends do not move."""
        there = self.there
        lanes = [
            np.array(sorted(each for each in self.values["reward",] if each % LANES == lane)) for lane in range(LANES)
        ]
        return np.intersect1d(there, np.concatenate([lane[::EVERY] for lane in lanes]))

    def check(self) -> None:
        """Every stored step has what the model has."""
        ids = self.buffer.column("ids")
        for keys in self.keys:
            column, of = self.buffer.column(".".join(keys)), self.values[keys]
            known = np.isin(ids, self.starts) if keys == ("state",) else ids >= 0
            assert (
                column[known] == np.array([of[each] for each in ids[known].tolist()]).reshape(-1, *WIDTHS[keys])
            ).all(), keys

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.add()
            if self.rng.random() < 0.5:
                self.write()
            if self.rng.random() < 0.05:
                self.buffer.cut()
                self.next = self.next + 1
        self.check()

    def reload(self) -> None:
        """Through a save, which leaves one field out; or through a copy, which leaves out none."""
        if self.path is None or self.rng.random() < 0.3:
            self.buffer = copy.deepcopy(self.buffer)
            return
        self.buffer.save(self.path)
        with pytest.warns(relive.ReliveWarning, match=r"nest\.scratch.*zero"):
            self.buffer = relive.load(self.path)
        for each in self.values["nest", "scratch"]:
            self.values["nest", "scratch"][each] = np.zeros(40, np.int16)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("seed", range(300 if LONG else 12))
def test_programs(seed: int, tmp_path: Path) -> None:
    model = Model(seed, path=tmp_path / "saves")
    for _ in range(3):
        model.live(40)
        model.reload()
        model.check()


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.skipif(not kernels.is_native(), reason="lanes are published by native kernels")
@pytest.mark.parametrize("seed", range(4))
def test_mapped_and_shared(seed: int, tmp_path: Path) -> None:
    """Mapped values are there when the file is opened again; a process that did not make the buffer writes nothing."""
    model = Model(seed, relive.Mapped(tmp_path / "steps") if seed % 2 else relive.Shared())
    with model.buffer:
        model.live(60)


def small(**choices: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=Field(), action=Field(), value=Field(writable=True), fixed=Field()), 4, seed=0, **choices
    )
    for i in range(6):
        buffer.add(obs=i, action=0, reward=i, value=i, fixed=i, next_obs=i + 1, terminated=False, truncated=False)
    return buffer


def values_of(buffer: relive.ReplayBuffer) -> dict[int, float]:
    ids = buffer.column("ids")
    return dict(sorted(zip(ids[ids >= 0].tolist(), buffer.column("value")[ids >= 0].tolist(), strict=True)))


@pytest.mark.parametrize(
    ("ids", "fields", "error", "text"),
    [
        ([4], {}, ArgumentError, "a field to write"),
        ([4], {"fixed": [1.0]}, ArgumentError, "a writable field \\(`value`\\)"),
        ([4], {"obs": [1.0]}, ArgumentError, "writable=True"),
        ([4], {"vaule": [1.0]}, ArgumentError, "vaule"),
        ([4, 5], {"value": [1.0]}, SchemaError, "shape"),
        ([4], {"value": ["a"]}, SchemaError, "float32"),
        ([4], {"value": [1e300]}, SchemaError, "can hold"),
        ([4, 6], {"value": [1.0, 1.0]}, StaleId, "`6`, never issued"),
        ([4, -2], {"value": [1.0, 1.0]}, StaleId, "`-2`, never issued"),
        ([4.5], {"value": [1.0]}, ArgumentError, "integers"),
    ],
)
def test_refusals_change_nothing(ids: list[Any], fields: dict[str, Any], error: type[Exception], text: str) -> None:
    buffer = small()
    with pytest.raises(error, match=text):
        buffer.write(ids, **fields)
    assert values_of(buffer) == {2: 2, 3: 3, 4: 4, 5: 5}


def test_late_ids_are_dropped_and_steps_that_wait_are_written() -> None:
    buffer = small(item=relive.Transitions(n_step=3))
    assert buffer.write([[0, 1], [2, 5]], value=[[10, 11], [12, 15]]) == 2
    assert values_of(buffer) == {2: 12, 3: 3, 4: 4, 5: 15}
    assert buffer.write(np.empty((0, 3), np.int64), value=np.empty((0, 3))) == 0


@pytest.mark.parametrize(
    ("options", "where", "text"),
    [
        ({"saved": False}, "extra", "writable=True"),
        ({"writable": True}, "obs", "extras and the reward"),
        ({"writable": True}, "action", "extras and the reward"),
        ({"writable": 1}, "extra", "True or False"),
    ],
)
def test_fields_that_cannot_be_writable(options: dict[str, Any], where: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        relive.Schema(**{"obs": Field(), "action": Field(), **{where: Field(**options)}})


def test_an_interrupt_leaves_all_or_nothing() -> None:
    """A signal whose handler raises, at many moments of a call that writes two fields."""
    schema = relive.Schema(obs=Field(), action=Field(), a=Field(writable=True), b=Field(writable=True))
    buffer = relive.ReplayBuffer(schema, 2000, seed=0)
    for i in range(2000):
        buffer.add(obs=i, action=0, reward=0, a=0, b=0, next_obs=i + 1, terminated=False, truncated=False)
    ids, hit = np.arange(2000), 0

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(1, 400):
            values = np.full(2000, i, np.float32)
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-6 * i)
                buffer.write(ids, a=values, b=values)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hit += 1
            a, b = (buffer.column(name)[buffer.column("ids") >= 0] for name in "ab")
            assert (a == b).all()
            assert a.min() == a.max()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hit > 20


@pytest.mark.slow
def test_what_it_costs() -> None:
    """256 numbers, and 1,024 rows of 2 KB; the best of many."""
    schema = relive.Schema(obs=Field(), action=Field(), value=Field(writable=True), wide=Field((512,), writable=True))
    buffer = relive.ReplayBuffer(schema, 100_000, seed=0)
    zeros = np.zeros(50_000, np.float32)
    step = {"obs": zeros, "action": zeros, "reward": zeros, "value": zeros, "next_obs": zeros}
    step |= {"wide": np.zeros((50_000, 512), np.float32), "terminated": zeros != 0, "truncated": zeros != 0}
    for _ in range(2):
        buffer.extend(**step)
    for n, fields, most in ((256, {"value": ()}, 200e-6), (1024, {"wide": (512,)}, 4e-3)):
        ids = np.random.default_rng(0).integers(0, 100_000, n)
        values = {name: np.ones((n, *shape), np.float32) for name, shape in fields.items()}
        times = []
        for _ in range(300):
            begun = time.perf_counter()
            buffer.write(ids, **values)
            times.append(time.perf_counter() - begun)
        print(n, fields, f"{min(times) * 1e6:.1f} us, median {np.median(times) * 1e6:.1f}")
        assert min(times) < most


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("stack", [None, 3])
def test_step_ids_are_those_of_the_steps(time_major: bool, across: bool, stack: int | None) -> None:
    """Of batches as the native draw makes them and as `read` does, over a ring that wraps, with ends and cuts."""
    item = relive.Sequences(5, burn_in=2, n_step=2, time_major=time_major, across_episodes=across, step_ids=True)
    schema = relive.Schema(
        obs=Field((2,), stack=stack), action=Field((), "int64"), value=Field((), "int64", writable=True)
    )
    buffer = relive.ReplayBuffer(schema, 200, num_envs=2, item=item, seed=0)
    rng, zeros = np.random.default_rng(0), np.zeros((2, 2) if stack is None else (2, stack, 2))
    for t in range(150):
        ends, now = rng.random(2) < 0.15, np.array([2 * t, 2 * t + 1])
        buffer.add(
            obs=zeros, action=now, reward=[0, 0], value=-now, next_obs=zeros, terminated=ends, truncated=[False] * 2
        )
        if t % 40 == 39:
            buffer.cut()
    for batch in (drawn := buffer.sample(64), buffer.read(drawn.ids)):
        assert ((batch.step_ids >= 0) == batch.mask).all()
        assert ((batch.step_ids[0] if time_major else batch.step_ids[:, 0]) == batch.ids).all()
        assert buffer.write(batch.step_ids, value=batch.action * 7) == batch.mask.sum()
        again = buffer.read(batch.ids)
        assert (again.value == batch.action * 7)[batch.mask].all()
    with pytest.raises(ArgumentError, match="another name"):
        relive.ReplayBuffer(relive.Schema(obs=Field(), action=Field(), step_ids=Field()), 20, item=item)
