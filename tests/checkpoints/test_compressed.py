"""Fields that saves compress: their files are as FORMAT.md says, and those of other buffers what they always were."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from needs import needs

import relive
from relive.checkpoints.inspection import inspect, verify
from relive.errors import MissingExtra
from relive.testing.agreement import assert_same_batch

LANES = 2
pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


def make(compress: str | None, every: int | None = None) -> relive.ReplayBuffer:
    images = relive.Field((5, 4), "uint8", stack=3, compress=compress)
    schema = relive.Schema(
        obs={"image": images, "joint": relive.Field(2)},
        action=relive.Field((), "bool", compress=compress),
        seen=relive.Field(3, "int8", every=every, compress=compress),
    )
    item = relive.Sequences(3, starts=2)
    return relive.ReplayBuffer(schema, 60, num_envs=LANES, item=item, seed=0, boundaries=1.0)


def live(buffer: relive.ReplayBuffer, first: int, last: int) -> None:
    for t in range(first, last):
        frames = np.broadcast_to(np.arange(t, t + 4, dtype=np.uint8)[:, None, None], (LANES, 4, 5, 4))
        ends = np.array([t % 7 == 6, t % 11 == 3])
        buffer.add(
            obs={"image": frames[:, :3], "joint": np.full((LANES, 2), t)},
            next_obs={"image": frames[:, 1:], "joint": np.full((LANES, 2), t + 1)},
            action=[t % 2, t % 3 == 0],
            reward=[t, -t],
            terminated=ends,
            truncated=[False, False],
            seen=np.full((LANES, 3), t % 5),
        )


@pytest.mark.parametrize("every", [None, 2])
def test_files_are_as_the_format_says(every: int | None, tmp_path: Path) -> None:
    """Read two saves without relive: every block, and the same file of a buffer that compresses nothing."""
    zstandard = needs("zstandard")
    found: list[dict[str, bytes]] = []
    for compress in (None, "zstd"):
        buffer, path = make(compress, every), tmp_path / str(compress)
        for first, last in ((0, 20), (20, 33)):
            live(buffer, first, last)
            buffer.save(path)
        manifest = json.loads((path / "save-0000000002.json").read_text())
        assert manifest["format"] == f"relive.buffer.{3 if compress else 2}"
        assert verify(path) == []
        arrays: dict[str, Any] = {}
        for number in (1, 2):
            raw = (path / f"steps-{number:010}.safetensors").read_bytes()
            start = 8 + int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8:start])
            metadata = header.pop("__metadata__")
            assert metadata["format"] == f"relive.steps.{2 if compress else 1}"
            data = {name: raw[start:][slice(*entry["data_offsets"])] for name, entry in header.items()}
            ranges = np.frombuffer(data["relive/ranges"], np.int64).reshape(-1, 3)
            assert start % 64 == 0
            for name in ("obs.image", "action", "seen"):
                key = f"relive/blocks/{name}"
                if compress:
                    k, begin, rows = int(metadata[key]), 0, b""
                    width = {"obs.image": 20, "action": 1, "seen": 3}[name]
                    for end, checksum in np.frombuffer(data[key], np.int64).reshape(-1, 2).tolist():
                        block = data[name][begin:end]
                        assert zlib.crc32(block) == checksum
                        rows += zstandard.ZstdDecompressor().decompress(block)
                        assert len(rows) % (k * width) == 0 or end == len(data[name])
                        begin = end
                    assert begin == len(data[name])
                else:
                    assert key not in header
                    rows = data[name]
                arrays[f"{name} {number}"] = rows
            arrays[f"ranges {number}"] = ranges.tobytes()
        found.append(arrays)
        loaded = relive.load(path)
        assert_same_batch(loaded.sample(50), buffer.sample(50))
        assert inspect(path).compressed.keys() == ({"obs.image", "action", "seen"} if compress else set())
    assert found[0] == found[1]


def test_safetensors_reads_them(tmp_path: Path) -> None:
    needs("zstandard")
    buffer = make("zstd")
    live(buffer, 0, 20)
    buffer.save(tmp_path)
    arrays = needs("safetensors.numpy").load_file(tmp_path / "steps-0000000001.safetensors")
    assert arrays["relive/blocks/obs.image"][-1, 0] == len(arrays["obs.image"])
    assert arrays["obs.joint"][-1].tolist() == [19, 19]


def test_without_the_package_it_is_said_at_once() -> None:
    with mock.patch.dict(sys.modules, {"zstandard": None}), pytest.raises(MissingExtra, match=r"relive\[compress\]"):
        relive.Field((3,), "uint8", compress="zstd")
