"""Random programs of a device buffer and of its oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from lockstep_lanes import Lanes, Oracle, Rec, compare, equal, expected_sequence, expected_transition, schema, tensors

import relive


class Program:
    """A buffer, its oracle, and lanes that step, end, are left out and are reset at random.

    Args:
        seed: Of all choices.
        sampler: In place of the one that is chosen.
    """

    def __init__(self, seed: int, sampler: Any = None) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.lanes = int(rng.choice([1, 2, 3, 5, 8, 12]))
        self.stack = int(rng.choice([1, 1, 2, 4]))
        pads, self.every = str(rng.choice(["zero", "first"])), int(rng.choice([1, 1, 3]))
        self.item = self._item()
        fields = schema(self.stack, pads, self.every)
        window = self.item.window(fields)
        steps = window.span + window.lookback + int(rng.integers(0, 25))
        weights = str(rng.choice(["batch", "buffer", "none"]))
        samplers = [relive.Uniform(), relive.Prioritized(weights=weights, stratified=bool(rng.integers(2)))]
        share = float(rng.choice([1 / 16, 0.2, 0.4, 1.0]))
        self.buffer = relive.DeviceBuffer(
            fields,
            steps * self.lanes,
            num_envs=self.lanes,
            item=self.item,
            sampler=[samplers[int(rng.integers(2))], sampler][sampler is not None],
            device="cpu",
            seed=seed,
            boundaries=share,
            masks=bool(seed % 2),
        )
        finals = self.lanes * max(math.ceil(steps * share), 1)
        self.oracle = Oracle(self.lanes, steps, window.span, getattr(self.item, "starts", 1), finals)
        self.envs = Lanes(self.lanes, self.stack, pads)
        self.masked, self.compares, self.same_step = (bool(each) for each in rng.integers(2, size=3))
        self.p_end, self.p_known = float(rng.choice([0.03, 0.15, 0.5])), float(rng.choice([1.0, 0.7]))
        self.silent = False  # lanes were reset in mid-episode without a word: the next call has to compare
        self.at_end = np.zeros(self.lanes, bool)  # lanes that wait for their reset
        self.calls = self.items = 0

    def _item(self) -> Any:
        rng, kind = self.rng, int(self.rng.integers(3))
        gamma, n = float(rng.choice([0.5, 0.9, 1.0])), int(rng.choice([1, 1, 2, 3, 5]))
        if not kind:
            self.every = 1
            return relive.Transitions(n_step=n, gamma=gamma, chunk=bool(rng.integers(2)))
        across = kind == 2
        burn_in = int(rng.integers(0, 3)) if across else self.every * int(rng.integers(0, 3))
        return relive.Sequences(
            int(rng.integers(1, 6)), burn_in=burn_in, n_step=n, gamma=gamma,
            starts=self.every * int(rng.choice([1, 1, 2])), across_episodes=across,
            time_major=bool(rng.integers(2)), step_ids=bool(rng.integers(2)),
        )  # fmt: skip

    def step(self) -> None:
        """Step all lanes, or some of them."""
        rng, count, oracle, envs, t = self.rng, self.lanes, self.oracle, self.envs, self.calls
        promised = not self.silent and (not self.compares or rng.random() < 0.5)
        was_silent, self.silent = self.silent, False
        mask = np.ones(count, bool)
        if self.masked:
            # With stacks, a stream begins padded: lanes are left out between episodes only.
            mask = ~self.at_end if self.stack > 1 else ~(self.at_end | (rng.random(count) < 0.15))
            for lane in np.flatnonzero(self.at_end):
                envs.seen[lane] = envs.begin()
            self.at_end[:] = False
        obs = [envs.show(frames) for frames in envs.seen]
        action, reward = rng.normal(size=(count, 3)).astype(np.float32), rng.integers(-9, 9, count).astype(np.float32)
        extra, state = rng.integers(0, 1 << 40, count), rng.normal(size=(count, 2)).astype(np.float32)
        ends = rng.random(count) < self.p_end
        terminated = ends & (rng.random(count) < 0.5)
        truncated = ends & (~terminated | (rng.random(count) < 0.2))
        known = rng.random(count) < self.p_known
        for lane in np.flatnonzero(mask) if was_silent else ():
            if oracle.open[lane] is not None and not equal(oracle.open[lane][-1].after, obs[lane]):
                oracle.close(lane, True)
        nexts, finals = [], []
        for lane in range(count):
            after = envs.on(envs.seen[lane])
            if not mask[lane]:  # what it is given must not matter
                oracle.close(lane, False)
                for given in (nexts, finals):
                    given.append(envs.show(envs.on(envs.seen[lane])))
                continue
            rec = Rec(t, obs[lane], action[lane], float(reward[lane]), int(extra[lane]), state[lane],
                      bool(terminated[lane]), bool(truncated[lane]), envs.show(after))  # fmt: skip
            rec.known = not ends[lane] or bool(known[lane])
            oracle.add(lane, rec)
            finals.append(envs.show(after))
            envs.seen[lane] = after
            if ends[lane] and (self.same_step or not self.masked):
                envs.seen[lane] = envs.begin()
            self.at_end[lane] = ends[lane] and self.masked and not self.same_step
            nexts.append(envs.show(envs.seen[lane]) if self.same_step else envs.show(after))
        given = {"obs": tensors(obs), "next_obs": tensors(nexts), "continues": promised}
        arrays = {"action": action, "reward": reward, "extra": extra, "state": state}
        arrays |= {"terminated": terminated, "truncated": truncated}
        arrays |= {"final_mask": known} if self.p_known < 1 else {}
        arrays |= {"mask": mask} if self.masked else {}
        given |= {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.given = given | ({"final_obs": tensors(finals)} if self.same_step else {})
        ids = self.buffer.add(**self.given)
        oracle.head, self.calls = oracle.head + 1, self.calls + 1
        assert ids.tolist() == np.where(mask, t * count + np.arange(count), -1).tolist()

    def disturb(self) -> None:
        """Reset lanes in mid-episode, told or not, or clear the buffer."""
        rng, envs, oracle = self.rng, self.envs, self.oracle
        if rng.random() < 0.1:
            who, tell = rng.random(self.lanes) < 0.5, not self.compares or rng.random() < 0.5
            resets = self.stack > 1 or rng.random() < 0.7
            for lane in np.flatnonzero(who & ~self.at_end):
                if resets and (tell or oracle.open[lane] is not None):
                    envs.seen[lane] = envs.begin()
            if tell:
                for lane in np.flatnonzero(who):
                    oracle.close(lane, True)
                self.buffer.cut(torch.from_numpy(who))
            self.silent = not tell
        if rng.random() < 0.01:
            self.buffer.clear()
            oracle.cleared, oracle.open = oracle.head, [None] * self.lanes
            for lane in np.flatnonzero(~self.at_end) if self.stack > 1 else ():
                envs.seen[lane] = envs.begin()

    def look(self) -> None:
        """Compare every item with the oracle's, and draw."""
        buffer, oracle = self.buffer, self.oracle
        items = oracle.items()
        every = torch.arange(-3, oracle.head * self.lanes + 3)
        found = buffer.read(every)
        assert found.ids[found.ids >= 0].tolist() == items
        assert len(buffer) == oracle.stored()
        assert buffer.can_sample(1) == bool(items)
        if not items:
            if oracle.head > oracle.cleared:
                assert (buffer.sample(5).ids == -1).all()
                with pytest.raises(relive.NotEnoughData):
                    buffer.check()
            return
        if isinstance(self.item, relive.Transitions):
            wanted = [expected_transition(oracle, self.item, i) for i in items]
        else:
            wanted = [expected_sequence(oracle, self.item, i, self.every) for i in items]
        compare(buffer.read(torch.tensor(items)), wanted, self.item)
        self.items += len(items)
        batch = buffer.sample(16)
        assert set(batch.ids.tolist()) <= set(items)
        again = buffer.read(batch.ids)
        for name in ("reward", "discount", "steps", "action", "extra", "state", "ids"):
            assert torch.equal(batch[name], again[name]), name
        if buffer.sampler.prioritizes and self.rng.random() < 0.7:
            buffer.update_priorities(batch.ids, torch.from_numpy(self.rng.normal(size=16)))
