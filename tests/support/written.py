"""A buffer whose steps get new values, beside tables that have them by id: each is written twice, in two ways."""

from __future__ import annotations

import contextlib
import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import storages

import relive
from relive import Field
from relive.errors import NotEnoughData, ReliveWarning, StaleId

LANES, EVERY, GAMMA = 3, 2, 0.5
IDS = LANES * 2_000  # of tables; programs are shorter
SCHEMA = relive.Schema(
    obs=Field((2,)),
    action=Field((), "int64"),
    reward=Field(writable=True),
    value=Field((), "float64", writable=True),
    nest={"latent": Field((3,), writable=True), "scratch": Field((40,), "int16", writable=True, saved=False)},
    state=Field((2,), every=EVERY, writable=True),
)
ITEMS: dict[str, Any] = {
    "steps": relive.Transitions(gamma=GAMMA),
    "n steps": relive.Transitions(n_step=3, gamma=GAMMA),
    "chunks": relive.Transitions(n_step=3, gamma=GAMMA, chunk=True),
    "sequences": relive.Sequences(4, starts=EVERY, step_ids=True),
    "sequences across": relive.Sequences(
        3, starts=EVERY, burn_in=1, across_episodes=True, time_major=True, step_ids=True
    ),
}
Keys = tuple[str, ...]


class Written:
    """The buffer, and what each step that it ever had got last.

    Args:
        item: One of `ITEMS`.
        storage: One of `storages.NAMES`.
        steps: That each lane keeps.
        seed: Of all that is drawn.
        folder: For saves and files; None: it is never saved.
    """

    def __init__(self, item: str, storage: str, steps: int, seed: int, folder: Path | None = None) -> None:
        self.rng, self.folder, self.storage = np.random.default_rng(seed), folder, storage
        self.sequences = item.startswith("sequences")
        fields = {name: field for name, field in SCHEMA.tree.items() if self.sequences or name != "state"}
        schema = relive.Schema(**fields)
        self.fields = {each.keys: each.field for each in schema.columns if each.field.writable}
        self.saves = None if folder is None else self.unused("saves")
        self.path, place = self.place(storage)
        self.buffer = relive.ReplayBuffer(
            schema, LANES * steps, num_envs=LANES, item=ITEMS[item], storage=place, seed=seed,
            sampler=relive.Prioritized(), boundaries=float(self.rng.choice([0.0, 0.5])),
        )  # fmt: skip
        self.tables = {keys: np.zeros((IDS, *f.shape), f.dtype) for keys, f in self.fields.items()}
        self.issued = np.zeros(IDS, bool)
        self.starts = np.zeros(IDS, bool)  # where items may start, and the state is kept
        self.added = np.zeros(LANES, int)
        self.next = np.zeros((LANES, 2), np.float32)
        self.late = np.empty(0, np.int64)

    def place(self, storage: str) -> tuple[Path | None, Any]:
        """Make a new storage, and return the file by which it can be opened again."""
        if storage != "mapped" or self.folder is None:
            return None, storages.new(storage)
        path = self.unused("ring")
        return path, relive.Mapped(path)

    def unused(self, name: str) -> Path:
        """Return an unused path."""
        assert self.folder is not None
        return self.folder / f"{name}{self.rng.integers(2**62)}"

    def drawn(self, keys: Keys, *lead: int) -> np.ndarray:
        field = self.fields[keys]
        return self.rng.integers(-100, 100, (*lead, *field.shape)).astype(field.dtype)

    @staticmethod
    def nested(values: dict[Keys, np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keys, each in values.items():
            place = found
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = each
        return found

    def extend(self) -> None:
        """Add some steps to some lanes."""
        lanes = np.unique(self.rng.integers(LANES, size=4))
        count = int(self.rng.integers(1, 5))
        lead = (len(lanes), count)
        after = self.rng.standard_normal((*lead, 2)).astype(np.float32)
        ends = self.rng.random(lead) < 0.1
        obs = np.concatenate([self.next[lanes][:, None], np.where(ends[..., None], np.float32(0), after)], axis=1)
        given = {keys: self.drawn(keys, *lead) for keys in self.fields}
        ids = self.buffer.extend(
            obs=obs[:, :-1], action=np.zeros(lead, int), next_obs=after, terminated=ends,
            truncated=np.zeros(lead, bool), env_ids=lanes, **self.nested(given),
        )  # fmt: skip
        self.next[lanes] = obs[:, -1]
        self.issued[ids] = True
        self.starts[ids] = (self.added[lanes][:, None] + np.arange(count)) % EVERY == 0
        self.added[lanes] += count
        for keys, each in given.items():
            self.tables[keys][ids] = each

    def chosen(self) -> np.ndarray:
        """Choose ids of every kind and shape, the same several times, -1, those of an earlier batch."""
        if len(self.late) and self.rng.random() < 0.4:
            ids, self.late = self.late, np.empty(0, np.int64)
            return ids
        known = np.flatnonzero(self.issued)
        size = tuple(self.rng.integers(1, 6, int(self.rng.integers(0, 4))))
        newest = self.rng.geometric(self.rng.choice([0.3, 0.03, 0.005]), size)
        ids = known[np.maximum(len(known) - newest, 0)]
        return np.where(self.rng.random(size) < 0.2, -1, ids)

    def write(self) -> None:
        """Write new values to some steps, in one call; stored ones get them, the last of several, and no others."""
        if not self.issued.any():
            return
        ids = self.chosen()
        keys = [keys for keys in self.fields if keys != ("state",) and self.rng.random() < 0.6]
        if self.sequences and self.rng.random() < 0.5:
            ids, keys = np.where((ids >= 0) & self.starts[ids], ids, -1), [*keys, ("state",)]
        given = {each: self.drawn(each, *ids.shape) for each in keys or [("value",)]}
        there = self.there
        assert self.buffer.write(ids, **self.nested(given)) == np.isin(ids, there).sum()
        for at, id_ in np.ndenumerate(ids):  # one by one, as they stand
            if id_ >= 0:
                for each, values in given.items():
                    self.tables[each][id_] = values[at]

    def refuse(self) -> None:
        """Write to an id that no step has, among others: no stored step changes."""
        heads = int(np.flatnonzero(self.issued).max(initial=0)) + 5 * LANES
        never = np.flatnonzero(~self.issued[:heads])
        ids = np.append(self.there[-3:], self.rng.choice(never))
        kept = self.buffer.column("ids")
        if ids[-1] > kept.max(axis=1)[ids[-1] % LANES] + LANES:  # a row that does not exist yet
            with pytest.raises(StaleId):
                self.buffer.write(ids, value=self.drawn(("value",), len(ids)))
        else:  # it was, or is, an observation behind the end of an episode
            with contextlib.suppress(StaleId):
                assert self.buffer.write(ids[-1:], value=self.drawn(("value",), 1)) == 0

    def draw(self) -> None:
        """Draw a batch, and compare it with the tables, computed fields, too; its ids are written later."""
        try:
            batch = self.buffer.sample(int(self.rng.integers(1, 9)))
        except NotEnoughData:
            return
        self.check_batch(batch)
        self.late = batch.step_ids if self.sequences else batch.ids

    def check_batch(self, batch: relive.Batch) -> None:
        """Check that each value is that of its step."""
        flat = batch.step_ids if self.sequences else batch.ids
        here = flat >= 0
        for keys, field in self.fields.items():
            got: Any = batch
            for key in keys:
                got = got[key]
            if keys == ("state",):
                assert (got == self.tables[keys][batch.ids]).all()
            elif keys != ("reward",) or self.sequences:
                assert (got[here] == self.tables[keys][flat[here]]).all(), keys
                assert got.dtype == field.dtype
        if not self.sequences:
            total, rewards = np.zeros(len(flat)), self.tables["reward",]
            for k in range(int(batch.steps.max())):
                ids, made = self.buffer.follow(flat, k)
                total += np.where((k < batch.steps) & (made == k), GAMMA**k * rewards[ids], 0)
            np.testing.assert_allclose(batch.reward, total, rtol=1e-6)

    @property
    def there(self) -> np.ndarray:
        """The ids of all stored steps."""
        ids = self.buffer.column("ids")
        return ids[ids >= 0]

    def check(self, buffer: relive.ReplayBuffer | None = None) -> None:
        """Check that every stored step has the tables' values."""
        buffer = buffer or self.buffer
        ids = buffer.column("ids")
        assert self.issued[ids[ids >= 0]].all()
        for keys in self.fields:
            column, known = buffer.column(".".join(keys)), ids >= 0
            if keys == ("state",):
                known &= self.starts[ids]
            assert (column[known] == self.tables[keys][ids[known]]).all(), keys

    def reload(self) -> None:
        """Go on with a copy; with what was saved, in another storage or a smaller buffer; with the same file."""
        kind = self.rng.integers(4)
        if self.path is not None and kind % 2:
            self.buffer.close()
            self.buffer = relive.open(self.path, seed=0)
            self.next = self.next + 1  # streams are cut
            self.saves = self.unused("saves")
        elif self.storage == "shared" and kind % 2:
            with relive.open(self.buffer.storage.name, seed=0) as reader:
                self.check(reader)
                with pytest.raises(relive.ReliveError, match="process"):
                    reader.write([-1], value=[0.0])
        elif self.saves and kind:
            self.buffer.save(self.saves)
            old = self.buffer
            steps = old.capacity // LANES
            choices = {"capacity": LANES * int(self.rng.integers(max(steps - 3, 5), steps + 3))} if kind == 1 else {}
            self.storage = str(self.rng.choice(storages.NAMES))
            self.path, place = self.place(self.storage)
            with pytest.warns(ReliveWarning, match=r"nest\.scratch.*zero"):
                self.buffer = relive.load(self.saves, storage=place, **choices)
            old.close()
            if choices:
                self.saves = self.unused("saves")
            self.tables["nest", "scratch"][:] = 0
        elif self.storage == "ram":
            self.buffer = copy.deepcopy(self.buffer)  # another buffer to a directory of saves
            self.saves = self.saves and self.unused("saves")

    def live(self, calls: int) -> None:
        """Make that many calls, and check everything now and then."""
        does = [self.extend, self.write, self.draw, self.refuse, self.cut, self.reload, self.check]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReliveWarning)
            for number in self.rng.choice(len(does), calls, p=[0.46, 0.3, 0.1, 0.03, 0.03, 0.03, 0.05]):
                does[number]()
            self.check()

    def cut(self) -> None:
        """End the streams of all lanes."""
        self.buffer.cut()
        self.next = self.next + 1
