"""Random lives of a buffer against the list-of-episodes model.

Every rule is a public call; after each one the drawable set, every item, raw priorities and counters must be the
model's. The long mode is ``RELIVE_EXAMPLES=20000 pytest tests/buffer/test_state_machine.py``.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from configs import configs
from expected_draws import draw, is_weights, stratified_targets
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from wild_envs import CUTS

import relive
from relive._base.nests import mapped
from relive.testing import GO, STAY, Script, assert_items, assert_same_buffer
from relive.testing.agreement import check_bytes
from relive.testing.nests import leaves
from relive.testing.strategies import lane_subsets, raw_priorities, scripts

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
UNEVENTFUL = Script([GO], [STAY], give_next=True)


class Grid:
    """A generator whose numbers lie evenly between 0 and 1."""

    def random(self, n):
        return (np.arange(n) + 0.5) / n


class ReplayMachine(RuleBasedStateMachine):
    """One buffer, its model, and the environments that feed both."""

    @initialize(config=configs(writable=True), data=st.data())
    def build(self, config, data):
        self.config = config
        self.buffer, self.oracle, self.envs = config.build(), config.oracle(), config.envs()
        self.seen: list[int] = []
        self.drawn = 0
        self.calls = 0
        laps = data.draw(st.integers(0, 2))
        if laps:
            self.roll_and_extend(*self.lanes_and_script(data), laps * config.rows - 1, time_major=False)

    def lanes_and_script(self, data):
        lanes = data.draw(lane_subsets(self.config.num_envs))
        return lanes, data.draw(scripts(self.config.sampler is not None, CUTS))

    @rule(data=st.data())
    def add(self, data):
        lanes, script = self.lanes_and_script(data)
        arguments = self.envs.rollout(lanes, 1, script)
        ids = self.oracle.extend(lanes, arguments)
        arguments = mapped(lambda value: value[:, 0], arguments)
        if lanes != list(range(self.config.num_envs)) or data.draw(st.booleans()):
            arguments["env_ids"] = lanes
        elif self.config.num_envs == 1 and data.draw(st.booleans()):
            arguments = mapped(lambda value: value[0], arguments)
        np.testing.assert_array_equal(self.buffer.add(**arguments), ids[:, 0])
        self.seen += ids.ravel().tolist()

    @rule(data=st.data(), time_major=st.booleans(), long=st.integers(0, 7))
    def extend(self, data, time_major, long):
        lanes, script = self.lanes_and_script(data)
        steps = data.draw(st.integers(1, 6)) if long else data.draw(st.integers(1, 2 * self.config.rows + 3))
        self.roll_and_extend(lanes, script, steps, time_major)

    def roll_and_extend(self, lanes, script, steps, time_major):
        if not steps:
            return
        arguments = self.envs.rollout(lanes, steps, script)
        ids = self.oracle.extend(lanes, arguments)
        if time_major:
            arguments, ids = mapped(lambda value: np.swapaxes(value, 0, 1), arguments), ids.T
        if lanes != list(range(self.config.num_envs)):
            arguments["env_ids"] = lanes
        np.testing.assert_array_equal(self.buffer.extend(**arguments, time_major=time_major), ids)
        self.seen += ids.ravel().tolist()

    @rule(data=st.data())
    def cut(self, data):
        lanes = data.draw(lane_subsets(self.config.num_envs))
        self.buffer.cut(env_ids=lanes)
        self.oracle.cut(lanes)
        self.envs.reset(lanes)

    @rule(often=st.integers(0, 3))
    def clear(self, often):
        """Clear seldom, or nothing would ever come to wrap."""
        if not often:
            self.buffer.clear()
            self.oracle.clear()

    @rule(data=st.data())
    def follow(self, data):
        """Follow far and near; ids that are not stored are refused."""
        stored = sorted(self.oracle.anchors())
        if stored:
            ids = data.draw(st.lists(st.sampled_from(stored), max_size=9))
            far = st.integers(-3 * self.config.rows, 3 * self.config.rows)
            steps = data.draw(st.lists(far, min_size=len(ids), max_size=len(ids)) | far)
            reached, made = self.buffer.follow(ids, steps)
            each = steps if isinstance(steps, list) else [steps] * len(ids)
            assert list(zip(reached.tolist(), made.tolist(), strict=True)) == self.oracle.follow(ids, each)
        gone = {*range(max(stored, default=0) + 2 * self.config.num_envs)} - {*stored}
        for key in data.draw(st.lists(st.sampled_from(sorted(gone)), max_size=3)) if gone else ():
            with pytest.raises(relive.errors.StaleId, match="ids of stored steps"):
                self.buffer.follow([*stored, key], 1)

    @rule()
    def columns(self):
        """Check every field of every stored step in its row, and zeros elsewhere."""
        steps = [anchor.step for _, anchor in sorted(self.oracle.anchors().items())]
        ids = np.array(sorted(self.oracle.anchors()), np.int64)
        lanes, places = ids % self.config.num_envs, ids // self.config.num_envs % self.config.rows
        for column in self.buffer.schema.columns:
            field, name = column.field, column.path.removeprefix("$.")
            want = np.zeros((self.config.num_envs, self.config.rows, *field.shape), field.dtype)
            for step, lane, place in zip(steps, lanes, places, strict=True):
                value = {"obs": step.obs, "action": step.action, "reward": step.reward, **step.extras}
                for key in column.keys:
                    value = value[key]
                if field.stack is not None:
                    value = np.take(value, -1, axis=field.stack_axis)
                if step.number % (field.every or 1) == 0:
                    want[lane, place] = value
            check_bytes(self.buffer.column(name), want, name)

    @rule(data=st.data())
    def read_some(self, data):
        items = self.oracle.items()
        if items:
            ids = data.draw(st.lists(st.sampled_from(sorted(items)), min_size=1, max_size=9))
            self.check_items(self.buffer.read(ids), [items[i] for i in ids])

    @precondition(lambda self: self.config.writable and self.seen)
    @rule(data=st.data())
    def write(self, data):
        """Write some of the fields, at steps of every state, the same several times; -1 is padding."""
        recent = sorted(set(self.seen))[-3 * self.config.rows * self.config.num_envs :]
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        ids = np.where(rng.random(12) < 0.1, -1, rng.choice(recent, 12))
        anchors, starts = self.oracle.anchors(), self.oracle.item.starts or 1
        kept = [key for key in ids.tolist() if key not in anchors or anchors[key].step.number % starts == 0]
        names = [name for name in self.config.fields.tree if name not in ("obs", "action")]
        chosen = data.draw(st.sets(st.sampled_from(names), min_size=1))
        if "state" in chosen:
            ids = np.array(kept, np.int64)
        values = {
            name: mapped(
                lambda field: rng.integers(-99, 99, (len(ids), *field.shape)).astype(field.dtype),
                self.config.fields.tree[name],
            )
            for name in chosen
        }
        assert self.buffer.write(ids, **values) == self.oracle.write(ids.tolist(), values)

    @precondition(lambda self: self.config.sampler is not None and self.seen)
    @rule(data=st.data())
    def update_priorities(self, data):
        recent = sorted(set(self.seen))[-3 * self.config.rows * self.config.num_envs :]
        stored = (
            self.oracle.anchors()
        )  # some of them wait, are no starts, or lack an older row: their updates are stale
        known = [i for i in recent if i in stored or self.overwritten(i)]
        if not known:
            return
        ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=12))
        td = data.draw(st.lists(raw_priorities(), min_size=len(ids), max_size=len(ids)))
        signs = data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=len(ids), max_size=len(ids)))
        applied = self.buffer.update_priorities(ids, np.array(td) * signs)
        assert applied == self.oracle.update(ids, [value + self.config.sampler["eps"] for value in td])

    def overwritten(self, key):
        lane = self.oracle.lanes[key % self.config.num_envs]
        return key // self.config.num_envs < max(self.oracle.oldest(lane), lane.cleared)

    @rule(n=st.integers(1, 40), beta=st.none() | st.sampled_from([0.0, 0.5, 1.0]))
    def sample(self, n, beta):
        anchors = np.array(self.oracle.by_slot(), np.int64)
        mass = self.config.mass(np.array([self.oracle.priority[i] for i in anchors]))
        with_replacement = self.config.sampler is None or self.config.sampler["replacement"]
        enough = (mass > 0).sum() >= (1 if with_replacement else n)
        assert self.buffer.can_sample(n) is bool(enough)
        kwargs = {} if beta is None or self.config.sampler is None else {"beta": beta}
        if not enough:
            with pytest.raises(relive.errors.NotEnoughData):
                self.buffer.sample(n, **kwargs)
            return
        rng = copy.deepcopy(self.buffer.rng)
        batch = self.buffer.sample(n, **kwargs)
        self.drawn += n
        items = self.oracle.items()
        self.check_items(batch, [items[i] for i in batch.ids.tolist()])
        place = {key: slot for slot, key in enumerate(anchors.tolist())}
        drawn = np.array([place[i] for i in batch.ids.tolist()])
        assert (mass[drawn] > 0).all()
        if not with_replacement:
            assert len(set(drawn.tolist())) == n
        self.check_law(batch, anchors, mass, drawn, rng, beta)

    def check_items(self, batch, items):
        """Check fields, the dtypes of computed ones, and that parts of others are views rather than copies."""
        assert_items(batch, items, self.config.whole)
        if "all_obs" in batch:
            assert (batch.mask.dtype, batch.discount.dtype, batch.steps.dtype) == (bool, np.float32, np.int32)
            for name in ("obs", "prev_action", "prev_reward"):
                for part, all_of_it in zip(leaves(batch[name]), leaves(batch[f"all_{name}"]), strict=True):
                    assert part.size == 0 or np.shares_memory(part, all_of_it), name

    def check_priorities(self, alpha):
        """Check raw priorities of every drawable id; with alpha = 0 only their sign is kept."""
        ids = self.oracle.by_slot()
        if ids:
            raw = np.array([self.oracle.priority[i] for i in ids])
            np.testing.assert_allclose(self.buffer.priorities(ids), raw if alpha else raw > 0, rtol=1e-11)

    def check_law(self, batch, anchors, mass, drawn, rng, beta):
        choice = self.config.sampler
        if choice is None:
            assert (batch.weights == 1).all()
            return
        if choice["replacement"]:
            targets = stratified_targets(rng.random(len(drawn)), mass.sum(), choice["stratified"])
            expected, sure = draw(mass, targets)
            np.testing.assert_array_equal(batch.ids[sure], anchors[expected][sure])
            assert rng.bit_generator.state == self.buffer.rng.bit_generator.state
        weights = is_weights(mass, drawn, choice["beta"] if beta is None else beta, choice["weights"])
        np.testing.assert_allclose(batch.weights, weights, rtol=2e-5)

    @precondition(lambda self: self.config.sampler is None and self.oracle.priority)
    @rule()
    def draw_all(self):
        """Draw by uniforms of every kind: each episode, and in it each item, is drawn as often as it should be."""
        episodes = self.oracle.episodes() if self.config.over == "episodes" else [list(self.oracle.priority)]
        each = 8 * max(len(ids) for ids in episodes)
        rng, self.buffer.rng = self.buffer.rng, Grid()
        drawn = self.buffer.sample(each * len(episodes)).ids.tolist()
        self.buffer.rng = rng
        self.drawn += len(drawn)
        assert set(drawn) <= set(self.oracle.priority)
        for ids in episodes:
            counts = [drawn.count(key) for key in ids]
            assert sum(counts) == each
            assert max(abs(count - each / len(ids)) for count in counts) <= 1

    @rule()
    def refused_call(self):
        lanes = self.config.num_envs
        arguments = self.config.envs().rollout(list(range(lanes)), 1, UNEVENTFUL)
        arguments = mapped(lambda value: value[:, 0], arguments)
        arguments["truncated"] = np.full(lanes, 2)
        with pytest.raises(relive.errors.SchemaError):
            self.buffer.add(**arguments)

    @invariant()
    def agrees(self):
        if not hasattr(self, "buffer"):
            return
        self.calls += 1
        assert_same_buffer(self.buffer, self.oracle, self.config.whole, self.calls)
        assert self.buffer.stats().drawn == self.drawn
        if self.config.sampler is not None:
            self.check_priorities(self.config.sampler["alpha"])


TestReplay = ReplayMachine.TestCase
TestReplay.settings = settings(max_examples=max(settings().max_examples, 25))
