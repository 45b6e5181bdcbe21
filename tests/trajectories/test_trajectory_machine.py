"""Random lives of a trajectory buffer, in memory, on disk and both, against a list of dicts.

Every rule is a public call. After each one counts are the list's; each draw is reproduced from a copy of the generator,
and every row of it is compared bit by bit. The long mode is ``RELIVE_EXAMPLES=20000 pytest tests/trajectories``.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import shutil
import tempfile
import warnings

import numpy as np
import pytest
from depth import LONG, MEMORY
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracle_trajectories import Oracle, assert_rows
from rollouts import as_tensors, fields, rollout, sizes
from sizes import with_sizes

from relive.errors import ArgumentError, NotEnoughData, ReliveError, SchemaError, StorageError
from relive.trajectories import TrajectoryReplayBuffer

limits = st.none() | st.integers(1, 6)
COMPRESSIONS = [None] if importlib.util.find_spec("zstandard") is None else [None, "zstd"]


class TrajectoryMachine(RuleBasedStateMachine):
    """One buffer, its list, and a checkpoint."""

    @initialize(
        kinds=fields,
        mode=st.sampled_from(["memory", "disk", "both"]),
        most=limits,
        most_bytes=st.none() | st.integers(1, 3000),
        narrow=st.sampled_from([None, 0.01, 1.1]),  # none, all, or all but one field: kept from the second draw on
        data=st.data(),
    )
    def build(self, kinds, mode, most, most_bytes, narrow, data):
        self.patched = contextlib.ExitStack()
        self.patched.enter_context(with_sizes(compressed=1, **({"narrow": narrow, "often": 1} if narrow else {})))
        self.folder = tempfile.mkdtemp(dir=MEMORY)
        self.kinds, self.mode, self.serial = kinds, mode, 0
        self.path = None if mode == "memory" else f"{self.folder}/own"
        self.saved = None
        # What files take is no affair of the list's.
        self.limits = {"max_trajectories": most, "max_bytes": most_bytes if mode == "memory" else None}
        self.open(data)
        self.add(data.draw(st.lists(sizes, min_size=1, max_size=5)), tensors=False)

    def open(self, data):
        window, seed = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 9))
        self.cache = data.draw(st.integers(0, 4)) if self.mode == "both" else 0
        self.cache_bytes = data.draw(st.sampled_from([0, 300, 10**6]))
        self.queue = data.draw(st.sampled_from([0, 2000, 10**6]))
        self.buffer = TrajectoryReplayBuffer(
            self.path,
            seed=seed,
            sample_window_size=window,
            enable_cache=self.mode != "disk",
            cache_size=self.cache,
            cache_bytes=self.cache_bytes,
            queue_bytes=self.queue,
            compress=data.draw(st.sampled_from(COMPRESSIONS)),
            **self.limits,
        )
        before = getattr(self, "oracle", None)
        self.oracle = Oracle(np.random.default_rng(seed), window, *self.limits.values())
        if before is not None:
            self.oracle.trajectories, self.oracle.counter = before.trajectories, before.counter
            self.oracle.added = len(before.trajectories)

    def make(self, size):
        self.serial += 1
        return rollout(self.kinds, size, self.serial)

    @rule(chosen=st.lists(sizes, max_size=3), tensors=st.booleans())
    def add(self, chosen, tensors):
        pairs = [self.make(size) for size in chosen]
        self.buffer.add_trajectories([as_tensors(given) if tensors else given for given, _ in pairs])
        self.oracle.add([kept for _, kept in pairs])

    @rule(n=st.integers(1, 40))
    def sample(self, n):
        if self.oracle.trajectories:
            assert_rows(self.buffer.sample(n), self.oracle.draw(n))
        else:
            with pytest.raises(NotEnoughData):
                self.buffer.sample(n)

    @rule(sync=st.booleans())
    def flush(self, sync):
        reached = self.buffer.sync() if sync else self.buffer.flush()
        if self.path is not None:
            assert reached.added == reached.flushed == self.oracle.added
            assert reached.durable == reached.added or not sync

    @precondition(lambda self: self.path is not None)
    @rule(data=st.data())
    def reopen(self, data):
        self.buffer.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it was closed in good order
            self.open(data)

    @rule()
    def save(self):
        target = f"{self.folder}/saved"
        if self.saved is not None and self.forked():
            with pytest.raises(StorageError, match="earlier checkpoint of this buffer"):
                self.buffer.save_checkpoint(target)
        else:
            self.buffer.save_checkpoint(target)
            self.saved = self.oracle.save()

    def forked(self):
        """Return True if an id of the checkpoint is another trajectory here, as after loading a share and adding."""
        told = {id_: kept["code"][0, 0, 0] for id_, kept in self.saved.trajectories}
        return any(
            told.get(id_, kept["code"][0, 0, 0]) != kept["code"][0, 0, 0] for id_, kept in self.oracle.trajectories
        )

    # In memory, bytes are those of arrays; after loading, those of files, which the list does not know.
    @precondition(lambda self: self.saved is not None and self.limits["max_bytes"] is None)
    @rule(world=st.integers(0, 4), data=st.data())
    def load(self, world, data):
        rank = data.draw(st.integers(0, world - 1)) if world else 0
        share = {"is_distributed": True, "local_rank": rank, "world_size": world} if world else {}
        self.buffer.load_checkpoint(f"{self.folder}/saved", **share)
        self.oracle.load(self.saved, rank, max(world, 1))

    @rule(sure=st.integers(0, 3))
    def clear(self, sure):
        if sure:
            return
        self.buffer.clear()
        self.oracle.clear()

    @invariant()
    def a_batch_is_right(self):
        if hasattr(self, "buffer") and self.oracle.trajectories:
            self.sample(9)

    @rule(which=st.integers(0, 9), size=sizes)
    def refused(self, which, size):
        before, state = self.buffer.get_stats(), copy.deepcopy(self.oracle.rng)
        good = self.make(size)[0]
        calls = [
            lambda: self.buffer.sample(0),
            lambda: self.buffer.sample(2.5),
            lambda: self.buffer.add_trajectories([good, {}]),
            lambda: self.buffer.add_trajectories([good, {**good, "further": good["code"]}]),
            lambda: self.buffer.add_trajectories([good, {**good, "code": good["code"].astype("f4")}]),
            lambda: self.buffer.add_trajectories([good, {**good, "code": good["code"][:, :, :2]}]),
            lambda: self.buffer.add_trajectories([good, 3]),
            lambda: self.buffer.add_trajectories([{**good, "code": good["code"].astype(object)}]),
            lambda: self.buffer.load_checkpoint(f"{self.folder}/nowhere"),
            lambda: self.buffer.load_checkpoint(
                f"{self.folder}/saved", is_distributed=True, local_rank=2, world_size=2
            ),
        ]
        with pytest.raises((SchemaError, ArgumentError, StorageError)) as told:
            calls[which]()
        assert isinstance(told.value, ReliveError)
        after = self.buffer.get_stats()
        for name in ("num_trajectories", "total_samples", "trajectory_counter", "added"):
            assert after[name] == before[name]
        assert state.bit_generator.state == self.oracle.rng.bit_generator.state

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "buffer"):
            return
        stats = self.buffer.get_stats()
        assert len(self.buffer) == stats["num_trajectories"] == len(self.oracle.trajectories)
        assert stats["total_samples"] == self.oracle.samples
        assert stats["trajectory_counter"] == self.oracle.counter
        assert stats["added"] == self.oracle.added
        assert stats["durable"] <= stats["flushed"] <= stats["added"] or self.path is None
        assert self.buffer.is_ready(len(self.oracle.trajectories))
        assert not self.buffer.is_ready(len(self.oracle.trajectories) + 1)
        if self.mode == "memory" and self.saved is None:
            assert stats["nbytes"] == self.oracle.nbytes
        if self.path is not None:
            assert stats["cache_size"] <= self.cache

    @precondition(lambda self: self.path is not None)
    @rule()
    def memory_is_bounded(self):
        self.buffer.sync()
        assert self.buffer.get_stats()["memory_bytes"] <= self.cache_bytes

    def teardown(self):
        if hasattr(self, "buffer"):
            self.buffer.close()
            self.patched.close()
            shutil.rmtree(self.folder)


TestTrajectoryMachine = TrajectoryMachine.TestCase
TestTrajectoryMachine.settings = settings(
    max_examples=max(settings().max_examples // 3, 100 if LONG else 6), stateful_step_count=20
)
