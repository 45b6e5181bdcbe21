"""A buffer that is saved and loaded, or copied, in the middle of a program goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import pickle
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from configs import Config, configs
from depth import LONG, some
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import Call, attempt, programs, vars_of
from sizes import with_sizes
from system_calls import watched
from wild_envs import CUTS

import relive
from relive._disk import tensor_writer, tensors
from relive._disk.files import Folder
from relive._ring import kernels as _kernels
from relive.testing import GO, STAY, OracleBuffer, Script, assert_same_buffer
from relive.testing._lives import BACK_ENDS
from relive.testing.agreement import assert_items, assert_same_batch, is_refused
from relive.testing.strategies import lane_subsets, raw_priorities, scripts
from relive.testing.streams import most_frames, stacks_of

UNEVENTFUL = Script([GO], [STAY], give_next=True)
pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
WAYS = ["save", "save", "save", "save without waiting", "pickle", "deepcopy", "go on"]


def passed_on(buffer: relive.ReplayBuffer, way: str, path: str, keep: int) -> relive.ReplayBuffer:
    """Pass a buffer through a save and a load, or a copy."""
    if way == "pickle":
        return pickle.loads(pickle.dumps(buffer))
    if way == "deepcopy":
        return copy.deepcopy(buffer)
    saved = buffer.save(path, keep=keep, wait=way != "save without waiting").wait()
    return buffer if way == "go on" else relive.load(path, number=saved.number)


@contextlib.contextmanager
def kernels(names: list[str]) -> Iterator[Any]:
    """Yield a function that switches to the next of these back ends."""
    with contextlib.ExitStack() as stack:
        left = iter(names)
        yield lambda: stack.enter_context(_kernels.use(next(left)))


def results_of(buffer: relive.ReplayBuffer, call: Call) -> list[Any]:
    name, arguments = call
    if name == "read_all":
        return [attempt(buffer.read, {"ids": [key]}) for key in arguments["ids"]]
    return [attempt(getattr(buffer, name), arguments)]


def all_of(buffer: relive.ReplayBuffer) -> dict[str, Any]:
    """Collect every statistic but those that depend on kernel or storage, and the generator."""
    stats = {name: value for name, value in vars(buffer.stats()).items() if name not in ("slow_adds", "nbytes")}
    return {**stats, "rng": buffer.rng.bit_generator.state["state"], "counters": buffer._core.ring.counters.tolist()}


def assert_same_results(ours: list[Any], theirs: list[Any], rtol: float = 0) -> None:
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, relive.Batch):
            assert_same_batch(one, other, rtol=rtol)
        else:
            np.testing.assert_array_equal(one, other)


@given(programs(spoiled=False), st.data())
@settings(max_examples=settings().max_examples // 2)
def test_a_loaded_buffer_goes_on_exactly(program: tuple[Config, list[Call]], data: st.DataObject) -> None:
    """Check ids, batches, weights, refusals and statistics, on both kernels, for any earlier saves there."""
    config, calls = program
    moments = data.draw(st.dictionaries(st.integers(0, len(calls) - 1), st.sampled_from(WAYS), min_size=1, max_size=4))
    names = data.draw(st.lists(st.sampled_from(BACK_ENDS), min_size=len(moments) + 1, max_size=len(moments) + 1))
    keep = data.draw(st.integers(1, 3))
    alone = config.build()
    with tempfile.TemporaryDirectory() as path, kernels(names) as next_kernels:
        next_kernels()
        buffer = config.build()
        for number, call in enumerate(calls):
            assert_same_results(results_of(buffer, call), results_of(alone, call), rtol=1e-6)
            if number in moments:
                next_kernels()
                buffer = passed_on(buffer, moments[number], path, keep)
                assert all_of(buffer) == all_of(alone)
        assert vars_of(buffer.stats()) == vars_of(alone.stats())


SMALL = {"checksum": 64, "written": 128, "rows": 1}


@pytest.mark.parametrize("name", BACK_ENDS)
@given(programs(spoiled=False), st.data())
@settings(max_examples=max(settings().max_examples // 8, 3))
def test_what_is_saved_is_one_instant(name: str, program: tuple[Config, list[Call]], data: st.DataObject) -> None:
    """Add by a call before each write of a save; rings of a few rows are overwritten again and again."""
    config, calls = program
    moment, guarded = data.draw(st.integers(0, len(calls) - 1)), data.draw(st.sampled_from([1, 500]))
    envs, lanes = config.envs(), list(range(config.num_envs))
    rounds = [("extend", envs.rollout(lanes, config.rows + 2, UNEVENTFUL)) for _ in range(3)]
    calls = [*calls[:moment], *rounds, *calls[moment:]]
    with tempfile.TemporaryDirectory() as path, watched(name) as system, with_sizes(**SMALL, guarded=guarded):
        buffer, alone = config.build(), config.build()
        for call in calls[:moment]:
            results_of(buffer, call)
            results_of(alone, call)
        later, results = iter(calls[moment:]), []

        def go_on(called: str, args: tuple[Any, ...]) -> None:
            for call in itertools.islice(later, called == "write"):
                results.append(results_of(buffer, call))

        system.before = go_on
        buffer.save(path, wait=False).wait()
        results += [results_of(buffer, call) for call in later]
        loaded = relive.load(path)
        assert all_of(loaded) == all_of(alone)
        heads = int(alone._core.ring.counters[:, 0].max())
        ids = [key for key in range(config.num_envs * heads) if not is_refused(alone, key)]
        assert_same_batch(loaded.read(ids), alone.read(ids))
        for call, each in zip(calls[moment:], results, strict=True):
            assert_same_results(results_of(loaded, call), each)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(1, 200),
    st.randoms(use_true_random=False),
)
@settings(max_examples=settings().max_examples // (1 if LONG else 2))
def test_a_file_is_its_arrays_whatever_order_their_bytes_come_in(
    sizes: list[int], shorter: int, most: int, random: Random
) -> None:
    """Check chunks of 64 bytes that begin and end anywhere in arrays; arrays share them, and parts have any size.

    The last arrays may be shorter than was said, and come one after the other behind all others.
    """
    arrays = {f"x{number}": random.randbytes(size) for number, size in enumerate(sizes)}
    left = {name: memoryview(data) for name, data in arrays.items()}
    opened = [*arrays][len(arrays) - min(shorter, len(arrays)) :]

    def portions() -> Iterator[tensor_writer.Portion]:
        while any(left.values()):
            now = [name for name in left if name not in opened and left[name]] or [n for n in left if left[n]][:1]
            names = tuple(name for name in now if random.random() < 0.7)
            parts = [left[name][: random.randint(0, most)] for name in names]
            left.update((name, left[name][len(part) :]) for name, part in zip(names, parts, strict=True))
            yield tensor_writer.Portion(names, tuple(map(len, parts)), lambda outs, parts=parts: filled(outs, parts))

    def filled(outs: Sequence[Any], parts: list[memoryview]) -> None:
        for out, part in zip(outs, parts, strict=True):
            out[:] = np.frombuffer(part, np.uint8)

    with with_sizes(checksum=64), tempfile.TemporaryDirectory() as path:
        kinds = {name: tensors.Tensor(np.dtype(np.uint8), (len(data),)) for name, data in arrays.items()}
        for name in opened:
            kinds[name] = tensors.Tensor(np.dtype(np.uint8), (len(arrays[name]) + random.choice([0, 5, 10**6]),))
        writer, folder = tensor_writer.TensorWriter(kinds, portions(), {}, opened), Folder(path)
        folder.write("file", writer.parts())
        folder.close()
        written, data = (Path(path) / "file").read_bytes(), b"".join(arrays.values())
    sums = np.array([zlib.crc32(data[at : at + 64]) for at in range(0, len(data), 64)], np.uint32)
    head = written[: 8 + int.from_bytes(written[:8], "little")]
    assert written[len(head) :] == data + sums.tobytes()
    assert json.loads(head[8:]).keys() == {"__metadata__", tensors.TABLE, *arrays}
    assert all(json.loads(head[8:])[name]["shape"] == [len(data)] for name, data in arrays.items())
    assert (writer.nbytes, writer.checksum) == (len(written), zlib.crc32(sums.tobytes(), zlib.crc32(head)))


@pytest.mark.parametrize("name", some(BACK_ENDS[::-1], 1))
def test_a_thread_adds_while_another_writes(name: str) -> None:
    """Check that each row is its step's, though native writes run during the copies of a slow save."""
    schema = relive.Schema(obs=relive.Field((2000,)), action=relive.Field((), "int64"))
    with tempfile.TemporaryDirectory() as path, watched(name) as system, with_sizes(written=1 << 16):
        buffer, ended = relive.ReplayBuffer(schema, 400, num_envs=2, seed=0), threading.Event()

        def extend(steps: int = 30) -> None:
            first = int(buffer._core.ring.counters[0, 0])
            code = np.broadcast_to(np.arange(first, first + steps), (2, steps))
            obs = np.broadcast_to(code[..., None].astype(np.float32), (2, steps, 2000))
            ends = np.zeros((2, steps), bool)
            buffer.extend(obs=obs, action=code, reward=code, terminated=ends, truncated=ends)

        def go_on() -> None:
            while not ended.is_set():
                extend(7)
                extend(250)

        extend(250)
        system.before = lambda called, args: time.sleep(0.01) if called == "write" else None
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for _ in range(4):
                number = buffer.save(path, wait=False).wait().number
        finally:
            ended.set()
            thread.join()
        assert number == 4
        loaded = relive.load(path)
        heads = loaded._core.ring.counters[:, 0]
        assert (heads < buffer._core.ring.counters[:, 0] - 200).all(), "the ring went round meanwhile"
        batch = loaded.sample(500)
        for codes in (batch.action, batch.reward, batch.obs.min(1), batch.obs.max(1)):
            np.testing.assert_array_equal(codes, batch.ids // 2)


def fitting(config: Config, other: Config, more: int) -> Config:
    """Fit `other` to the steps of `config`: with its schema, and `more` steps than an item needs."""
    frames = most_frames(stacks_of(config.fields.tree["obs"]))
    least = other.n_step + frames - 1
    starts = 1
    if other.sequences is not None:
        starts = 1 if other.sequences["starts"] == "episodes" else other.sequences["starts"]
        least = other.sequences["length"] + other.sequences["burn_in"] + other.n_step - 1 + max(frames - 1, 1)
    assume(starts % (config.every or 1) == 0)
    same = {"schema": config.schema, "num_envs": config.num_envs, "every": config.every}
    return dataclasses.replace(other, **same, boundaries=config.boundaries, steps=least + more)


@given(configs(), configs(), st.data())
@settings(max_examples=settings().max_examples // 3)
def test_the_same_steps_under_other_choices(config: Config, other: Config, data: st.DataObject) -> None:
    """Check that another item, sampler, capacity draws as the oracle of these choices, then and later."""
    wanted = fitting(config, other, data.draw(st.integers(0, 12)))
    buffer, envs = config.build(), config.envs()
    oracle = dataclasses.replace(wanted, steps=config.steps).oracle()

    def feed(*buffers: relive.ReplayBuffer) -> None:
        lanes = data.draw(lane_subsets(config.num_envs))
        if data.draw(st.integers(0, 5)) == 0:
            oracle.cut(lanes)
            for each in buffers:
                each.cut(env_ids=lanes)
            return
        script = dataclasses.replace(data.draw(scripts(False, CUTS)), priorities=None)
        steps = envs.rollout(lanes, data.draw(st.integers(1, config.rows + 4)), script)
        ids = oracle.extend(lanes, steps)
        for each in buffers:
            np.testing.assert_array_equal(each.extend(**steps, env_ids=lanes), ids)

    for _ in range(data.draw(st.integers(1, 5))):
        feed(buffer)
        if config.sampler is not None and buffer.can_sample(3):
            batch = buffer.sample(3)
            buffer.update_priorities(batch.ids, data.draw(st.lists(raw_priorities(), min_size=3, max_size=3)))
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        model = wanted.build()
        if wanted.steps < config.steps:
            shrink(oracle, wanted)
        choices = {"capacity": model.capacity, "item": model.item, "sampler": model.sampler}
        loaded = relive.load(path, **choices)
        if wanted.steps <= config.steps:
            assert_same_buffer(loaded, oracle, wanted.whole)
        elif oracle.items():  # its lanes have room for more rows than the oracle's
            assert_items(loaded.read(list(oracle.items())), list(oracle.items().values()), wanted.whole)
            assert loaded.stats().drawable == len(oracle.items())
        assert_carried(buffer, loaded)
        # Ids and what further saves build upon stay what they were.
        loaded.save(path)
        assert_same_batch(relive.load(path).read(list(oracle.items())), loaded.read(list(oracle.items())))
    if wanted.steps <= config.steps:
        for _ in range(data.draw(st.integers(0, 4))):
            feed(loaded)
            assert_same_buffer(loaded, oracle, wanted.whole)


def shrink(oracle: OracleBuffer, wanted: Config) -> None:
    """Keep the newest steps only, as a buffer with smaller lanes does."""
    oracle.steps_per_lane, oracle.rows_per_lane = wanted.steps, wanted.rows
    for lane in oracle.lanes:
        oracle.give_up(lane)
    oracle.refresh()


def assert_carried(buffer: relive.ReplayBuffer, loaded: relive.ReplayBuffer) -> None:
    """Check that raw priorities are those of before if both samplers have them, else `initial`."""
    rows = range(buffer.num_envs * int(buffer._core.ring.counters[:, 0].max(initial=0)))
    both = [key for key in rows if not (is_refused(buffer, key) or is_refused(loaded, key))]
    if both and loaded.sampler.prioritizes:
        known = buffer.sampler.prioritizes and buffer.sampler.alpha > 0 and loaded.sampler.alpha > 0
        expected = buffer.priorities(both) if known else None
        if known:
            np.testing.assert_allclose(loaded.priorities(both), expected, rtol=1e-12)
        elif not buffer.sampler.prioritizes and loaded.sampler.alpha > 0:
            np.testing.assert_allclose(loaded.priorities(both), loaded.sampler.initial, rtol=1e-12)


WIDE = [(1, None, None), (1, None, 25), (1, None, 90), (2, [1], None)]


@pytest.mark.parametrize(("lanes", "taken", "capacity"), WIDE)
def test_wide_fields_of_one_lane_are_read_to_where_they_stay(
    lanes: int, taken: list[int] | None, capacity: int | None, tmp_path: Path
) -> None:
    """Read two files of steps, a lane that filled its memory, and the observation after the newest step."""
    schema = relive.Schema(obs=relive.Field((300,)), action=relive.Field((40,), "int64"))
    buffer = relive.ReplayBuffer(schema, 40 * lanes, num_envs=lanes, boundaries=0)
    for number, steps in enumerate((40, 13)):
        values = np.random.default_rng(number).random((lanes, steps + 1, 300), np.float32)
        action = values[:, :steps, :40].view(np.int32).astype(np.int64)
        ends = np.zeros((lanes, steps), bool)
        buffer.extend(
            obs=values[:, :-1], action=action, reward=ends, next_obs=values[:, 1:], terminated=ends, truncated=ends
        )
        buffer.save(tmp_path)
    loaded = relive.load(tmp_path, lanes=taken, capacity=capacity)
    origin, rows = 0 if taken is None else taken[0], np.arange(54 - min(40, capacity or 40), 54)
    whole = [row for row in rows.tolist() if not is_refused(buffer, row * lanes + origin)]
    assert len(whole) >= 24
    before = buffer.read([row * lanes + origin for row in whole])
    assert_same_batch(loaded.read(whole), before, without=("ids",))


@given(programs(spoiled=False), st.data())
@settings(max_examples=max(settings().max_examples // 4, 6))
def test_lanes_can_be_chosen(program: tuple[Config, list[Call]], data: st.DataObject) -> None:
    """Check that lanes of one save, or of several, become those of a new buffer; row and contents stay."""
    config, calls = program
    buffer = config.build()
    for call in calls:
        results_of(buffer, call)
    lanes = data.draw(lane_subsets(config.num_envs))
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        twice = relive.load([path, path], lanes=[lanes, lanes[:1]], seed=1)
        once = relive.load(path, lanes=lanes, seed=1)
    for loaded, origins in ((twice, [*lanes, lanes[0]]), (once, lanes)):
        assert loaded.num_envs == len(origins)
        heads = loaded._core.ring.counters[:, 0].tolist()
        for lane, origin in enumerate(origins):
            for row in range(heads[lane]):
                key, before = row * len(origins) + lane, row * config.num_envs + origin
                assert is_refused(loaded, key) == is_refused(buffer, before)
                if not is_refused(loaded, key):
                    assert_same_batch(loaded.read([key]), buffer.read([before]), without=("ids",))
