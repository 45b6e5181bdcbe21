"""Compressed blocks that are none while every checksum matches: `load`, `verify` and `salvage` say the same."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import pairs, some
from needs import needs
from sizes import with_sizes

import relive
from relive._disk import blocks
from relive._disk.tensor_writer import portions_of
from relive.checkpoints import inspection, sharded
from relive.checkpoints.salvage import salvage
from relive.errors import CorruptionError

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
STEPS = 90


def packed(raw: bytes, **options: Any) -> bytes:
    zstandard = needs("zstandard")
    return zstandard.ZstdCompressor(**options).compress(raw)


def unsized(raw: bytes) -> bytes:
    return packed(raw, write_content_size=False)


FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda raw: bytes(100),
    "nothing": lambda raw: b"",
    "noise": lambda raw: np.random.default_rng(0).bytes(200),
    "fewer rows": lambda raw: packed(raw[: len(raw) // 2]),
    "more rows": lambda raw: packed(raw + raw),
    "no size": unsized,
    "cut": lambda raw: packed(raw)[:-3],
    "its end differs": lambda raw: packed(raw)[:-3] + b"abc",
    "two halves": lambda raw: packed(raw[: len(raw) // 2]) + packed(raw[len(raw) // 2 :]),
    "a frame to skip": lambda raw: b"\x50\x2a\x4d\x18\4\0\0\0abcd" + packed(raw),
    "more behind it": lambda raw: packed(raw) + b"garbage",  # which nobody reads
    "with a checksum": lambda raw: packed(raw, write_checksum=True),  # as good as without
}
INDEXES: dict[str, Callable[[np.ndarray], None]] = {
    "an end before its beginning": lambda index: index.__setitem__((-1, 0), -1 - index[-1, 0]),
    "a negative end": lambda index: index.__setitem__((0, 0), -5),
    "an end behind the file": lambda index: index.__setitem__((-1, 0), 1 << 40),
    "an end far behind": lambda index: index.__setitem__((-1, 0), 2**63 - 1),
    "another checksum": lambda index: index.__setitem__((-1, 1), 7),
    "a checksum out of range": lambda index: index.__setitem__((0, 1), -1),
    "blocks in another order": lambda index: index.__setitem__(slice(None), index[::-1] ^ 1),
}


def build(stack: int | None = None, every: int | None = None) -> relive.ReplayBuffer:
    obs = relive.Field((64,), "uint8", compress="zstd", stack=stack)
    extra = {"seen": relive.Field((3,), "bool", compress="zstd", every=every)}
    schema = relive.Schema(obs=obs, action=relive.Field(), **extra)
    return relive.ReplayBuffer(schema, 200, num_envs=2, item=relive.Sequences(2, starts=every or 1), seed=0)


def live(buffer: relive.ReplayBuffer, first: int, last: int) -> None:
    k = buffer.schema.columns[0].field.stack
    for t in range(first, last):
        frames = np.broadcast_to(np.arange(t, t + 5)[:, None], (2, 5, 64)) % 256
        now, then = (frames[:, at : at + k] if k else frames[:, at] for at in (0, 1))
        buffer.add(
            obs=now, action=[0, 0], reward=[t, -t], next_obs=then, seen=np.full((2, 3), t % 3 == 0),
            terminated=[t % 20 == 19] * 2, truncated=[False] * 2,
        )  # fmt: skip


def hostile(frame: Callable[[bytes], bytes] | None, index: Callable[[np.ndarray], None] | None, every: int) -> Any:
    """Make the writer of an array's blocks: each `every`-th another frame, or another index."""
    from zstandard import ZstdCompressor

    def portions(self: blocks.Packing, rows: Iterable[np.ndarray]) -> Iterator[Any]:
        end, encoder = 0, ZstdCompressor()
        for number, raw in enumerate(rows):
            sound = frame is None or number % every
            block = encoder.compress(raw.data) if sound else frame(raw.tobytes())
            end += len(block)
            self._index[number] = end, zlib.crc32(block)
            yield from blocks.portions_of(self._name, np.frombuffer(block, np.uint8))
        if index is not None:
            index(self._index)
        yield from portions_of(blocks.INDEX + self._name, self._index)

    return portions


def assert_agree(path: Path, target: Path, sound: relive.ReplayBuffer) -> bool:
    """Check that all three agree on the damage, and that salvaged steps are unchanged; return True if it is damaged."""
    problems = inspection.verify(path)
    try:
        loaded = relive.load(path)
    except CorruptionError:
        loaded = None
    found = salvage(path, target)
    kept = relive.load(target)
    assert bool(problems) == (loaded is None) == bool(sum(found.lost)) == bool(found.problems), (problems, found)
    assert len(kept) == sum(found.stored) - sum(found.lost)
    assert inspection.verify(target) == []
    for batch in kept.batches(16, shuffle=False) if kept.can_sample(1) else ():
        was = sound.read(batch.ids)
        for name in ("obs", "next_obs", "reward", "seen"):
            here = batch.mask if name != "seen" or getattr(batch, name).ndim > 2 else np.ones(len(batch.ids), bool)
            assert np.array_equal(getattr(batch, name)[here], getattr(was, name)[here]), name
    return loaded is None


def saved_twice(buffer: relive.ReplayBuffer, path: Path, monkeypatch: Any, name: str, method: Any) -> None:
    """Save half of the steps soundly, and the others with another method of `Packing`."""
    live(buffer, 0, STEPS // 2)
    buffer.save(path / "source")
    live(buffer, STEPS // 2, STEPS)
    with monkeypatch.context() as patched:
        patched.setattr(blocks.Packing, name, method)
        buffer.save(path / "source")


@pytest.mark.parametrize(("kind", "form"), pairs([*FRAMES, *INDEXES], [(None, None, 1), (3, 2, 1), (None, 4, 2)]))
def test_load_verify_and_salvage_agree(kind, form, tmp_path, monkeypatch):
    needs("zstandard")
    stack, every, each = form
    buffer = build(stack, every)
    with with_sizes(block=64 * 20):
        saved_twice(buffer, tmp_path, monkeypatch, "portions", hostile(FRAMES.get(kind), INDEXES.get(kind), each))
    bad = assert_agree(tmp_path / "source", tmp_path / "target", buffer)
    assert bad == (kind not in ("more behind it", "with a checksum"))
    assert len(relive.load(tmp_path / "target")) >= STEPS - 10, "what the sound file has is lost"


@pytest.mark.parametrize("what", some(["0", "-3", "x", "999999999999", "1.5", "7"], 3))
def test_blocks_of_other_rows(what, tmp_path, monkeypatch):
    """Check that nothing of that file can be used, by its header; the others can."""
    needs("zstandard")
    buffer = build()
    real = blocks.Packing.__init__

    def init(self: blocks.Packing, *arguments: Any) -> None:
        real(self, *arguments)
        self.metadata = dict.fromkeys(self.metadata, what)

    saved_twice(buffer, tmp_path, monkeypatch, "__init__", init)
    assert assert_agree(tmp_path / "source", tmp_path / "target", buffer)
    assert len(relive.load(tmp_path / "target")) >= STEPS - 4


def test_shards_with_a_block_that_is_none(tmp_path, monkeypatch):
    """`verify` and `salvage` of shards say the same of each."""
    needs("zstandard")
    (tmp_path / "source").mkdir()
    schema = build().schema
    for shard in range(2):
        buffer = build()
        live(buffer, 0, STEPS)
        if shard:
            monkeypatch.setattr(blocks.Packing, "portions", hostile(FRAMES["zeros"], None, 1))
        buffer.save(sharded.directory(str(tmp_path / "source"), shard))
        facts = {"lanes": [shard, shard + 2], "firsts": [[0, 0]], "lives": [1], "blocks": {}}
        sharded.write_json(str(tmp_path / "source"), sharded.facts_name(shard), {"saves": {"1": facts}})
    monkeypatch.undo()
    manifest = json.loads((tmp_path / "source/shard-0000/save-0000000001.json").read_text())["choices"]
    facts = {name: manifest[name] for name in ("item", "sampler", "schema", "steps", "rows", "boundaries")}
    facts |= {"format": sharded.FORMATS[0], "shards": 2, "num_envs": 4, "complete": True, "draws": 0, "drawn": 0}
    sharded.write_json(str(tmp_path / "source"), sharded.MANIFEST, facts)
    assert [text.count("shard-0001") for text in sharded.verify(tmp_path / "source")] == [1, 1]
    found = sharded.salvage(tmp_path / "source", tmp_path / "target")
    assert [sum(each.lost) if each else None for each in found.shards] == [0, 2 * STEPS]
    assert len(found.problems) == 2
    assert schema == relive.load(tmp_path / "target/shard-0000").schema
