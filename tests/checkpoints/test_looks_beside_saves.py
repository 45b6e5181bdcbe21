"""`inspect` and `verify` beside a process that saves there: what a later save replaces meanwhile is no damage."""

from __future__ import annotations

import time

import pytest
from autosaved import add, made
from depth import LONG
from moving_directory import written_by

import relive
from relive._disk.files import Folder
from relive.checkpoints import inspection, sharded
from relive.errors import CorruptionError, StorageError

SECONDS = 60.0 if LONG else 0.2
WRITER = """
import contextlib, json, os, sys
import numpy as np
import relive
from relive.checkpoints import sharded
path, keep, shards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
schema = relive.Schema(obs=relive.Field((8,), "uint8"), action=relive.Field())
buffers = [relive.ReplayBuffer(schema, 300, sampler=relive.Prioritized(), seed=0) for _ in range(shards or 1)]
def save():
    for shard, buffer in enumerate(buffers):
        at = sharded.directory(path, shard) if shards else path
        t = np.arange(50) % 250
        buffer.extend(obs=np.repeat(t[:, None], 8, 1), action=t, reward=t, next_obs=np.repeat(t[:, None] + 1, 8, 1),
                      terminated=t % 50 == 49, truncated=t < 0)
        if shards:
            number = 1 + (sharded.newest(path, shard) or 0)
            saves = {}
            with contextlib.suppress(relive.StorageError):
                saves = sharded.read_json(path, sharded.facts_name(shard))["saves"]
            saves = {key: saves[key] for key in list(saves)[-1:]}
            saves[str(number)] = {"lanes": [shard], "firsts": [[0]], "lives": [1], "blocks": {}}
            sharded.write_json(path, sharded.facts_name(shard), {"saves": saves})
        buffer.save(at, keep=keep)
save()
if shards:
    facts = json.loads(open(sharded.directory(path, 0) + "/save-0000000001.json").read())["choices"]
    facts = {name: facts[name] for name in ("item", "sampler", "schema", "steps", "rows", "boundaries")}
    facts |= {"format": sharded.FORMATS[0], "shards": shards, "num_envs": shards, "complete": True}
    sharded.write_json(path, sharded.MANIFEST, {**facts, "draws": 0, "drawn": 0})
print("up", flush=True)
while not os.path.exists(path + ".stop"):
    save()
"""


@pytest.mark.parametrize(("keep", "shards"), [(1, 0), (3, 0), (1, 2)])
def test_what_is_replaced_meanwhile_is_no_damage(keep, shards, folder):
    path, looks = folder / "made", 0
    with written_by(WRITER, path, keep, shards):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or looks < 3:
            if shards:
                assert all(shard.number and shard.stored for shard in sharded.inspect(path).shards)
                assert sharded.verify(path) == []
            else:
                found = inspection.inspect(path)
                assert 1 <= len(found.saves) <= keep + 1
                assert found.stored.sum() >= 50
                assert inspection.verify(path) == []
                assert len(relive.load(path)) >= 50
            looks += 1
    if shards:
        assert sharded.verify(path) == []
    else:
        assert inspection.inspect(path).unused == ()


@pytest.mark.parametrize("call", [relive.load, inspection.inspect, inspection.verify, inspection.is_saved])
def test_a_listing_may_miss_the_save_that_goes_and_the_one_that_comes(call, folder, monkeypatch):
    made().save(folder)
    whole, listed = Folder.sizes, []

    def sizes(self):
        found = whole(self)
        listed.append(found)
        return found if len(listed) > 1 else {name: size for name, size in found.items() if ".json" not in name}

    monkeypatch.setattr(Folder, "sizes", sizes)
    assert call(folder) is not False
    assert len(listed) > 1


def test_what_is_damaged_is_said_at_once(folder):
    """Damage a file that a present save still needs, and a manifest; ask for a save that is gone."""
    buffer = made()
    for _ in range(3):
        add(buffer)
        buffer.save(folder, keep=2)
    state, manifest = folder / "state-0000000003.safetensors", folder / "save-0000000002.json"
    kept = state.read_bytes()
    state.unlink()
    begin = time.process_time()  # others may keep the cores
    assert len(inspection.verify(folder)) == 1
    with pytest.raises(CorruptionError, match="state-0000000003"):
        inspection.inspect(folder)
    state.write_bytes(kept)
    manifest.write_text(manifest.read_text().replace('"updates"', '"update"'))
    assert [text for text in inspection.verify(folder) if str(manifest) in text]
    with pytest.raises(StorageError, match=str(manifest)):
        inspection.inspect(folder)
    manifest.unlink()
    with pytest.raises(StorageError, match=r"one of the saves \[3\]"):
        inspection.inspect(folder, number=2)
    assert inspection.inspect(folder).unused == ("state-0000000002.safetensors",)
    assert time.process_time() - begin < 2
