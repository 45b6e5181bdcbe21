"""What is salvaged from a damaged save is what it was, bit for bit; what is not damaged is not lost."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from configs import Config
from depth import pairs, some
from hypothesis import event, given, settings
from hypothesis import strategies as st
from needs import needs
from programs import Call, attempt, programs
from sizes import with_sizes
from wild_envs import CUTS

import relive
from relive.checkpoints.salvage import salvage
from relive.testing.agreement import assert_same_batch, is_refused
from relive.testing.strategies import scripts
from relive.testing.streams import most_frames, stacks_of

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
CHUNK = 16  # so that a file of a few hundred bytes has several


def run(config: Config, calls: list[Call]) -> relive.ReplayBuffer:
    buffer = config.build()
    for name, arguments in calls:
        if name != "read_all":
            attempt(getattr(buffer, name), arguments)
    return buffer


def flip(path: Path, places: list[float]) -> None:
    """Damage the data of files of steps, not their headers and checksums; seldom their ranges."""
    files = sorted(path.glob("steps-*"))
    for place in places if files else []:
        file = files[int(place * 1000) % len(files)]
        raw = bytearray(file.read_bytes())
        start = 8 + int.from_bytes(raw[:8], "little")
        offsets = {name: entry["data_offsets"] for name, entry in json.loads(raw[8:start]).items() if "dtype" in entry}
        first = offsets["relive/ranges"][1] if place > 0.1 else 0
        end = offsets["relive/crc32"][0]
        raw[start + first + int(place * (end - first))] ^= 1 + int(place * 254)
        file.write_bytes(raw)


def assert_other_items_are_whole(longest: int, sound: Path, salvaged: Path) -> None:
    """Check that under another item a window may be shorter than before, at a gap, and equals a shorter one."""
    items = [relive.Transitions(n_step=k, gamma=0.9) for k in range(1, longest + 1)]
    whole = [relive.load(sound, item=item, sampler=relive.Uniform()) for item in items]
    loaded = relive.load(salvaged, item=items[-1], sampler=relive.Uniform())
    for key in range(loaded.num_envs * int(loaded._core.ring.counters[:, 0].max(initial=0))):
        if not is_refused(loaded, key):
            batch = loaded.read([key])
            assert_same_batch(batch, whole[int(batch.steps[0]) - 1].read([key]), rtol=1e-6)


@given(programs(spoiled=False), st.data())
@settings(max_examples=settings().max_examples // 2)
def test_what_is_salvaged_is_what_it_was(program: tuple[Config, list[Call]], data: st.DataObject) -> None:
    config, calls = program
    buffer = run(config, calls)
    with tempfile.TemporaryDirectory() as name, with_sizes(checksum=CHUNK, read=16 * CHUNK):
        source, target = Path(name) / "source", Path(name) / "target"
        buffer.save(source)
        places = data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=4))
        shutil.copytree(source, Path(name) / "sound")
        flip(source, places)
        before = {file.name: file.read_bytes() for file in source.iterdir()}
        found = salvage(source, target)
        assert {file.name: file.read_bytes() for file in source.iterdir()} == before
        loaded = relive.load(target)
        if config.every is None:
            longest = config.steps - most_frames(stacks_of(config.fields.tree["obs"])) + 1
            assert_other_items_are_whole(min(3, longest), Path(name) / "sound", target)
    stored = buffer._core.ring.counters[:, 7]
    np.testing.assert_array_equal(found.stored, stored)
    np.testing.assert_array_equal(np.subtract(stored, found.lost), loaded._core.ring.counters[:, 7])
    rows = range(buffer.num_envs * int(buffer._core.ring.counters[:, 0].max(initial=0)))
    items = [key for key in rows if not is_refused(loaded, key)]
    if not places:
        assert items == [key for key in rows if not is_refused(buffer, key)]
    if items:
        assert_same_batch(loaded.read(items), buffer.read(items))
        if buffer.sampler.prioritizes:
            np.testing.assert_array_equal(loaded.priorities(items), buffer.priorities(items))
    assert loaded.stats().drawable == len(items)
    if loaded.can_sample(1):
        assert set(loaded.sample(64 if loaded.sampler.replacement else 1).ids.tolist()) <= set(items)
    # It is a buffer like any other: further steps come after what is left, and what it has can be drawn as before.
    goes_on = config.envs().rollout([0], data.draw(st.integers(1, 4)), data.draw(scripts(False, CUTS)))
    loaded.extend(**goes_on, env_ids=[0])
    left = [key for key in items if not is_refused(loaded, key)]
    if left:
        assert_same_batch(loaded.read(left), buffer.read(left))
    event(f"lost: {min(sum(found.lost), 3)}, left: {min(len(items), 3)}, {config.sequences is not None}")


ITEMS = {
    "one step": relive.Transitions(),
    "three steps": relive.Transitions(n_step=3, gamma=0.9),
    "sequences": relive.Sequences(2, burn_in=1, n_step=2, gamma=0.9),
    "long burn-in": relive.Sequences(1, burn_in=4),
    "across episodes": relive.Sequences(2, n_step=2, gamma=0.9, across_episodes=True),
}


@pytest.mark.parametrize(("form", "name"), pairs([(None, None), (3, None), (3, "zstd")], some([*ITEMS][::-1], 3)))
def test_any_one_chunk_can_be_lost(name: str, form: tuple[int | None, str | None], tmp_path: Path) -> None:
    """Lose a chunk, or a block: the observations of two rows, or as much of another field; one lane, three episodes."""
    stack, compress = form
    if compress:
        needs("zstandard")
    dtype = "uint8" if compress else "float32"
    schema = relive.Schema(
        obs=relive.Field(4, dtype, stack=stack, pad="first", compress=compress), action=relive.Field()
    )
    buffer = relive.ReplayBuffer(schema, 40, item=ITEMS[name], sampler=relive.Prioritized(), seed=0)
    for t in range(21):
        times = np.maximum([t - 2, t - 1, t], t // 7 * 7) if stack else np.array([t])
        obs, after = (np.repeat(at[:, None], 4, 1) for at in (times, np.append(times, t + 1)[1:]))
        values = {"obs": obs if stack else obs[0], "next_obs": after if stack else after[0], "reward": t + 1}
        buffer.add(**values, action=t + 1, terminated=t % 7 == 6, truncated=False)
    items = [key for key in range(40) if not is_refused(buffer, key)]
    with with_sizes(checksum=32, read=512, block=8):
        buffer.save(tmp_path / "sound")
        (file,) = (tmp_path / "sound").glob("steps-*")
        raw = file.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        end = start + json.loads(raw[8:start])["relive/crc32"]["data_offsets"][0]
        for place in some(range(start + 24, end, 32), 6):  # behind the ranges
            path = tmp_path / str(place)
            shutil.copytree(tmp_path / "sound", path / "source")
            damaged = bytearray(raw)
            damaged[place] ^= 1
            (path / "source" / file.name).write_bytes(damaged)
            found = salvage(path / "source", path / "new")
            loaded = relive.load(path / "new")
            left = [key for key in items if not is_refused(loaded, key)]
            assert loaded.stats().drawable == len(left)
            assert 1 <= sum(found.lost) <= 8 + 4 + bool(stack) * 2
            if left:
                assert_same_batch(loaded.read(left), buffer.read(left))
                assert set(loaded.sample(64).ids.tolist()) <= set(left)
            assert_other_items_are_whole(3, tmp_path / "sound", path / "new")
