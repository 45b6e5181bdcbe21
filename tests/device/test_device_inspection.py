"""`relive inspect`, `relive salvage` and `relive top` on saves of device buffers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from depth import pairs, some
from lockstep_programs import Program
from test_lockstep_laws import LANES, items_of
from test_recency_on_device import SAMPLERS, made

import relive
from relive.checkpoints import inspection
from relive.checkpoints.salvage import salvage
from relive.checkpoints.watching import SavesWatch
from relive.cli import main
from relive.device import _salvaging

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_it_shows_what_the_oracle_has(seed: int, tmp_path: Path) -> None:
    program = Program(seed)
    for t in range(70):
        program.step()
        program.disturb()
        if t % 30 == 11:
            program.buffer.save(tmp_path)
    program.look()
    saved = program.buffer.save(tmp_path)
    found, stats, oracle = inspection.inspect(tmp_path), program.buffer.stats(), program.oracle
    assert inspection.on_device(tmp_path)
    assert (found.number, found.lanes, found.steps) == (saved.number, program.lanes, stats.capacity // program.lanes)
    assert (found.stored.sum(), found.added, found.drawn, found.cuts) == (
        stats.size, stats.added, stats.drawn, stats.cuts,
    )  # fmt: skip
    calls = range(oracle.first(), oracle.head)
    kept = [[recs[c] for c in calls if c in recs] for recs in oracle.recs]
    assert found.rewards.tolist() == [rec.reward for recs in kept for rec in recs]
    whole = [
        rec.stream
        for recs in kept
        for rec in recs
        if (rec.terminated or rec.truncated) and rec.stream[0].call >= calls.start
    ]
    assert found.lengths.tolist() == [len(stream) for stream in whole]
    assert found.returns.tolist() == [sum(rec.reward for rec in stream) for stream in whole]
    items = sorted(oracle.items(), key=lambda i: (i % program.lanes, i))
    assert found.ages.tolist() == [oracle.head - 1 - i // program.lanes for i in items]
    if program.buffer.sampler.prioritizes:
        priorities = program.buffer.priorities(torch.tensor(items, dtype=torch.int64))
        np.testing.assert_allclose(found.priorities, priorities, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "fill_name"),
    pairs(["uniform", "prioritized", "by share", "blend", "in order"], ["went round", "starts", "masks"]),
)
def test_shares_are_the_probabilities(name: str, fill_name: str, tmp_path: Path) -> None:
    buffer = made(SAMPLERS[name], fill_name)
    buffer.save(tmp_path)
    items = items_of(buffer)
    found, chances = inspection.inspect(tmp_path), buffer.probability(items).numpy()
    order = np.lexsort((items, items % LANES))
    np.testing.assert_allclose(found.shares, chances[order] * len(items), rtol=1e-5)
    if buffer.sampler.prioritizes:
        np.testing.assert_allclose(found.priorities, buffer.priorities(items)[order], rtol=1e-5)


def images(path: Path, keep: int = 1) -> relive.DeviceBuffer:
    schema = relive.Schema(
        obs=relive.Field((16, 16, 3), "uint8"), action=relive.Field(), tag=relive.Field(writable=True)
    )
    buffer = relive.DeviceBuffer(schema, 40, num_envs=2, device="cpu", seed=0, sampler=relive.Prioritized())
    no = torch.zeros(2, dtype=torch.bool)
    for t in range(30):
        obs = torch.full((2, 16, 16, 3), t, dtype=torch.uint8)
        buffer.add(
            obs=obs, action=no.float(), reward=torch.arange(2.0) + t, tag=no.float(), next_obs=obs + 1,
            terminated=no, truncated=no, continues=True,
        )  # fmt: skip
        if t % 12 == 5:
            buffer.sample(4)
            buffer.save(path, keep=keep)
    return buffer


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "saves", tmp_path / "page.html"
    buffer = images(path, keep=3)
    assert main(["inspect", str(path), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("Prioritized(", "uint8", "12 drawn"))
    assert "lane 1, row 29" in page.read_text()
    assert all((image == row).all() for _, row, image in inspection.inspect(path).images[0][1])
    assert SavesWatch(path).look().drawn == 12
    # The newest file of steps is damaged: the save before it is whole.
    steps = max(path.glob("steps-*"))
    data = bytearray(steps.read_bytes())
    data[len(data) // 2] ^= 1
    steps.write_bytes(data)
    assert inspection.verify(path)
    with pytest.raises(relive.errors.CorruptionError):
        relive.load(path, device="cpu")
    assert main(["salvage", str(path), str(tmp_path / "sound")]) == 0
    assert "of save 2 written" in capsys.readouterr().out
    found = relive.load(tmp_path / "sound")
    assert len(found) == 36 < len(buffer)
    with pytest.raises(relive.StorageError, match="`relive salvage` writes the newest one that is whole"):
        salvage(path, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert json.loads((max((tmp_path / "sound").glob("*.json"))).read_text())["number"] == 1


def test_nothing_that_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "saves"
    images(path)
    for steps in path.glob("steps-*"):
        steps.write_bytes(steps.read_bytes()[:-1])
    with pytest.raises(relive.StorageError, match="No save can be used"):
        _salvaging.salvage(path, tmp_path / "target")
