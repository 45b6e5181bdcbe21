"""`relive inspect`, `verify` and `salvage` on directories of shards, and of what they are given by mistake."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_steps import check_items, filled, made
from told import damage, out_of

import relive
from relive.checkpoints import sharded
from relive.errors import CorruptionError, StorageError


@pytest.fixture(scope="module", name="saved")
def _saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Save three shards twice; return the path and the number of their steps."""
    path = tmp_path_factory.mktemp("saved") / "shards"
    shards, _ = made()
    envs = filled(shards, 10)
    shards.save(str(path))
    filled(shards, 15, envs)
    shards.stats()
    ids = np.unique(shards.sample(900).ids)
    shards.update_priorities(ids, 1.0 + ids % 7)
    shards.save(str(path))
    return path, shards.stats().size


@pytest.fixture(name="copy")
def _copy(saved: tuple[Path, int], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "shards"))


def newest(path: Path, kind: str = "steps") -> Path:
    return max(path.glob(f"{kind}-*.safetensors"))


def test_sound_shards(saved: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, steps = saved
    out = out_of(capsys, "inspect", path)
    for text in ("shards │ 3", f"{steps:,} stored", "Prioritized(", "│ 0 │ 2 │", "│ 2 │ 2 │"):
        assert text in out
    found = sharded.inspect(path)
    assert (found.complete, len(found.shards), sum(shard.stored for shard in found.shards)) == (True, 3, steps)
    assert {shard.number for shard in found.shards} == {2}
    assert sum(shard.lanes for shard in found.shards) == found.num_envs
    done: list[tuple[int, int]] = []
    assert sharded.verify(path, lambda *at: done.append(at)) == []
    files = [
        each for each in path.rglob("*") if each.is_file() and not each.name.startswith(("save", "shards", "lock"))
    ]
    assert done == [(k + 1, len(files)) for k in range(len(files))]
    assert f"All {len(files)} files are intact." in out_of(capsys, "verify", path)
    out = out_of(capsys, "salvage", path, tmp_path / "sound")
    assert [int(text) for text in re.findall(r"of (\d+) steps of shard \d, save 2 written", out)] == [
        shard.stored for shard in found.shards
    ]
    (again, _), (before, _) = (made(source=str(each)) for each in (tmp_path / "sound", path))
    assert again.stats().size == steps
    assert sharded.verify(tmp_path / "sound") == []
    batch, wanted = again.sample(300), before.sample(300)
    check_items(batch)
    np.testing.assert_array_equal(np.unique(batch.ids % 9), np.unique(wanted.ids % 9))
    assert [s.mass for s in again.stats().shards] == [s.mass for s in before.stats().shards]


@pytest.mark.parametrize("what", ["steps", "state", "facts", "lanes", "none"])
def test_damage_is_found_and_the_rest_is_salvaged(
    what: str, copy: Path, saved: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = copy / "shard-0001"
    if what in ("steps", "state"):
        damage(newest(shard, what), -100)
    elif what == "facts":
        damage(copy / "shard-0001.json", 40)
    elif what == "lanes":
        sharded.write_json(
            str(copy), "shard-0001.json", {"saves": {"2": {"lanes": [0], "firsts": [[0]], "lives": [0]}}}
        )
    else:
        shutil.rmtree(shard)
    out = out_of(capsys, "verify", copy, status=1)
    assert "shard-0001" in out
    assert "Damaged places: 1." in out
    out = out_of(capsys, "salvage", copy, tmp_path / "sound")
    assert ("shard 1 is left out" in out) == (what in ("facts", "none", "state")), out
    if what != "lanes":  # which says other ids than the steps had
        again, _ = made(source=str(tmp_path / "sound"))
        assert 0 < again.stats().size <= saved[1]
        check_items(again.sample(300))
    assert sharded.inspect(tmp_path / "sound").complete == (what not in ("facts", "none", "state"))


def test_what_cannot_be_salvaged_leaves_nothing(copy: Path, tmp_path: Path) -> None:
    for shard in range(3):
        (copy / f"shard-{shard:04d}.json").unlink()
    with pytest.raises(StorageError, match="No shard can be used"):
        sharded.salvage(copy, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())
    damage(copy / "shards.json", 30)
    for call in (sharded.inspect, sharded.verify, lambda path: sharded.salvage(path, tmp_path / "other")):
        with pytest.raises(CorruptionError, match=r"shards\.json"):
            call(copy)
    assert not (tmp_path / "other").exists()
    for facts, text in (
        ({"format": "relive.shards.9"}, r"relive\.shards\.9"),
        ({"format": "relive.shards.2", "shards": 10**12, "complete": True}, "1000000000000 shards"),
    ):
        (copy / "shards.json").write_text(json.dumps(facts))
        for call in (sharded.inspect, sharded.verify):
            with pytest.raises(CorruptionError, match=text):
                call(copy)


def test_what_is_of_another_kind_is_said(saved: tuple[Path, int], tmp_path: Path, capsys: Any) -> None:
    for option in (["--html", tmp_path / "page.html"], ["--number", "1"]):
        assert "name one of its shards, such as" in out_of(capsys, "inspect", saved[0], *option, status=2)
    ring = tmp_path / "ring"
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    relive.ReplayBuffer(schema, 100, storage=relive.Mapped(ring)).close()
    for command in (["inspect", ring], ["verify", ring], ["salvage", ring, tmp_path / "other"]):
        assert "got a file" in out_of(capsys, *command, status=2)
