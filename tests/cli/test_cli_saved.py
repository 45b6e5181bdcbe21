"""`relive inspect`, `verify` and `salvage` on saved buffers, and the pages of both kinds of directories."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.checkpoints import inspection
from relive.checkpoints.salvage import salvage
from relive.cli import main
from relive.testing.agreement import assert_same_batch
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, inspect

STEPS = 40
SAMPLERS = {
    "uniform": relive.Uniform(),
    "episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(),
    "recent": relive.Recent(share=0.2),
    "blend": relive.Blend((relive.Uniform(), 0.5), (relive.Prioritized(), 0.3), (relive.Recent(mean_age=9.0), 0.2)),
    "once": relive.Once(),
}


def buffer_of(sampler: Any = None, shape: tuple[int, ...] = (16, 16), stack: int | None = None) -> relive.ReplayBuffer:
    """Make two lanes; episodes of 8 steps in the first, an open one in the second; a reward of 1 at every step."""
    schema = relive.Schema(obs=relive.Field(shape, "uint8", stack=stack), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 200, num_envs=2, sampler=sampler, seed=0)

    def seen(t: int) -> Any:
        newest = np.stack([np.full(shape, t - k, np.uint8) for k in range(stack or 1)])[::-1]
        return np.stack([newest, newest]) if stack else np.concatenate([newest, newest])

    for t in range(8, 8 + STEPS):
        ends = np.array([t % 8 == 7, False])
        step = {"obs": seen(t), "action": [0, 0], "reward": [1, 1], "next_obs": seen(t + 1)}
        buffer.add(**step, terminated=ends, truncated=[False, False])
    return buffer


def out_of(capsys: Any, *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    return " ".join(capsys.readouterr().out.split())


def damage(file: Path, place: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[place] ^= 4
    file.write_bytes(raw)


def test_inspect_shows_what_is_there(tmp_path, capsys):
    buffer_of(relive.Prioritized()).save(tmp_path)
    out = out_of(capsys, "inspect", str(tmp_path))
    for text in (
        "1 (",
        "Transitions(",
        "Prioritized(",
        "80 stored, 80 added",
        "2 of 100 steps (124 rows)",
        "5 stored as a whole",
    ):
        assert text in out
    assert "smallest 8, median 8, largest 8" in out
    assert re.search(r"obs │ uint8 │ \(16, 16\) │ 21,760", out)


@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_inspected_is_what_the_buffer_says(name, tmp_path):
    buffer = buffer_of(SAMPLERS[name])
    if buffer.sampler.prioritizes:
        batch = buffer.sample(16)
        buffer.update_priorities(batch.ids, np.arange(16.0))
    buffer.save(tmp_path)
    found = inspection.inspect(tmp_path)
    stats = buffer.stats()
    assert (found.stored.sum(), found.added, found.drawn) == (stats.size, stats.added, stats.drawn)
    assert len(found.ages) == stats.drawable
    assert found.returns.tolist() == [8.0] * 5
    assert found.rewards.tolist() == [1.0] * 80
    if buffer.sampler.prioritizes:
        quantiles = np.quantile(found.priorities, (0, 0.25, 0.5, 0.75, 1))
        np.testing.assert_allclose(quantiles, stats.priority_quantiles)
        counts = np.bincount(np.concatenate([buffer.sample(80).ids for _ in range(300)]), minlength=100)
        np.testing.assert_allclose(np.sort(found.shares)[-3:], np.sort(counts)[-3:] / 300, rtol=0.2)
    elif name == "uniform":
        assert found.shares.tolist() == [1.0] * stats.drawable
    elif name != "recent":
        assert not len(found.shares)
    if name in ("recent", "blend"):
        ids = sorted(buffer.ids().tolist(), key=lambda key: (key % 2, key))
        np.testing.assert_allclose(found.shares, buffer.probability(ids) * len(ids), rtol=1e-9)


class Resources(HTMLParser):
    """The addresses that a page loads or runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.images = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            inline = str(value).startswith("data:image/png;base64,")
            self.images += inline
            if tag in ("script", "link", "iframe") or name.startswith("on") or (name in ("src", "href") and not inline):
                self.found.append(f"{tag} {name}")


def of_page(file: Path) -> Resources:
    text = file.read_text(encoding="utf-8")
    assert "http" not in text
    assert "@import" not in text
    return Resources(text)


@pytest.mark.parametrize(
    ("shape", "stack"), [((16, 16), None), ((16, 16), 4), ((16, 12, 3), None), ((3, 16, 12), None), ((4, 16, 12), None)]
)
def test_the_page_of_a_save_needs_nothing_else(shape, stack, tmp_path, capsys):
    buffer_of(relive.Prioritized(), shape, stack).save(tmp_path / "save")
    out_of(capsys, "inspect", str(tmp_path / "save"), "--html", str(tmp_path / "page.html"))
    page = of_page(tmp_path / "page.html")
    assert not page.found
    assert page.images == 12
    text = (tmp_path / "page.html").read_text()
    for title in ("Fill", "Rewards", "Episode lengths", "Priorities", "Shares of the draws", "Ages", "Files"):
        assert f"<h2>{title}</h2>" in text


@pytest.mark.parametrize("empty", [False, True])
def test_the_page_of_trajectories_needs_nothing_else(empty, tmp_path, capsys):
    with TrajectoryReplayBuffer(tmp_path / "replay") as buffer:
        for length in () if empty else (3, 5):
            images = np.zeros((length, 2, 16, 16, 3), np.uint8)
            rewards = np.ones((length, 2, 1), np.float32)
            buffer.add_trajectories([Trajectory(curr_obs={"a<b": images}, rewards=rewards)])
    out_of(capsys, "inspect", str(tmp_path / "replay"), "--html", str(tmp_path / "page.html"))
    page = of_page(tmp_path / "page.html")
    assert not page.found
    assert page.images == (0 if empty else 2)
    assert "a<b" not in (tmp_path / "page.html").read_text()


def test_a_buffer_that_is_empty_can_be_inspected(tmp_path, capsys):
    relive.ReplayBuffer(relive.Schema(obs=relive.Field(2), action=relive.Field()), 10).save(tmp_path / "save")
    out_of(capsys, "inspect", str(tmp_path / "save"), "--html", str(tmp_path / "page.html"))
    assert not of_page(tmp_path / "page.html").found


def test_verify_reads_every_byte_of_every_save(tmp_path, capsys):
    buffer = buffer_of()
    buffer.save(tmp_path)
    step = {"obs": np.ones((2, 16, 16), np.uint8), "action": [0, 0], "reward": [0, 0]}
    buffer.add(**step, terminated=[True, True], truncated=[False, False])
    buffer.save(tmp_path, keep=2)
    assert "All 4 files are intact." in out_of(capsys, "verify", str(tmp_path))
    for file in sorted(tmp_path.glob("s*-*")):
        raw = file.read_bytes()
        for place in (0, 9, len(raw) // 2, len(raw) - 1):
            damage(file, place)
            assert file.name in out_of(capsys, "verify", str(tmp_path), status=1), place
            file.write_bytes(raw)
        file.write_bytes(raw[:-1])
        assert file.name in out_of(capsys, "verify", str(tmp_path), status=1)
        file.write_bytes(raw)
    damage(tmp_path / "steps-0000000001.safetensors", 8 + 1000)
    assert "offset" in out_of(capsys, "verify", str(tmp_path), status=1)


def test_salvage_says_what_is_lost(tmp_path, capsys):
    buffer = buffer_of(shape=(64, 64))
    buffer.save(tmp_path / "save")
    (file,) = (tmp_path / "save").glob("steps-*")
    damage(file, file.stat().st_size // 2)  # a chunk has 16 frames, some of each lane
    out = out_of(capsys, "salvage", str(tmp_path / "save"), str(tmp_path / "new"))
    lost = sum(map(int, re.findall(r"(\d+) of 40 steps are lost", out)))
    assert 14 <= lost <= 19
    assert f"{80 - lost} of 80 steps of save 1 written" in out
    assert "All 2 files are intact." in out_of(capsys, "verify", str(tmp_path / "new"))
    assert len(relive.load(tmp_path / "new")) == 80 - lost
    assert main(["salvage", str(tmp_path / "save"), str(tmp_path / "new")]) == 2
    assert "a new or an empty directory" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["save", "state"])
def test_salvage_takes_the_newest_save_that_can_be_used(kind, tmp_path, capsys):
    buffer = buffer_of()
    buffer.save(tmp_path / "save")
    buffer.cut()
    buffer.save(tmp_path / "save", keep=2)
    (file,) = (tmp_path / "save").glob(f"{kind}-*2.*")
    damage(file, file.stat().st_size // 2)
    out = out_of(capsys, "salvage", str(tmp_path / "save"), str(tmp_path / "new"))
    assert "save 2 cannot be used" in out
    assert "80 of 80 steps of save 1 written" in out


def reward_of(achieved_goal, desired_goal, info):
    return -np.abs(achieved_goal - desired_goal).sum(axis=-1)


def goal_buffer(item: relive.Hindsight) -> relive.ReplayBuffer:
    """Make two lanes with episodes of 10 steps; frames so large that some are in every chunk of a file."""
    goal = relive.Field((2,))
    schema = relive.Schema(
        obs={"frame": relive.Field((64, 64), "uint8"), "achieved_goal": goal, "desired_goal": goal},
        action=relive.Field(),
    )
    buffer = relive.ReplayBuffer(schema, 100, num_envs=2, item=item, seed=0)

    def seen(t: int) -> Any:
        goals = {"achieved_goal": np.full((2, 2), t), "desired_goal": np.full((2, 2), 99)}
        return {"frame": np.full((2, 64, 64), t, np.uint8), **goals}

    for t in range(40):
        step = {"obs": seen(t), "action": [t, t], "reward": [t, -t], "next_obs": seen(t + 1)}
        buffer.add(**step, terminated=[t % 10 == 9] * 2, truncated=[False] * 2)
    return buffer


def salvaged_hindsight(path: Path, capsys: Any, place: float | None) -> tuple[str, list[relive.ReplayBuffer]]:
    """Salvage a buffer whose item has a function; return the command's text, that buffer, and the new one."""
    item = relive.Hindsight(item=relive.Transitions(n_step=2), reward=reward_of)
    buffer = goal_buffer(item)
    buffer.save(path / "save")
    if place is not None:
        (file,) = (path / "save").glob("steps-*")
        damage(file, int(file.stat().st_size * place))
    out = out_of(capsys, "salvage", str(path / "save"), str(path / "new"))
    assert "Hindsight(" in out_of(capsys, "inspect", str(path / "new"))
    with pytest.raises(relive.ReliveError, match=r"`item=`.*Hindsight"):
        relive.load(path / "new")
    return out, [buffer, relive.load(path / "new", item=item)]


def test_salvage_needs_no_function_of_an_item(tmp_path, capsys):
    out, (buffer, found) = salvaged_hindsight(tmp_path, capsys, None)
    assert "80 of 80 steps" in out
    assert_same_batch(found.sample(64), buffer.sample(64))  # goals and their rewards, too


def test_salvage_drops_what_is_damaged_of_an_item_with_a_function(tmp_path, capsys):
    out, (buffer, found) = salvaged_hindsight(tmp_path, capsys, 0.5)
    lost = sum(map(int, re.findall(r"(\d+) of 40 steps are lost", out)))
    assert 10 <= lost <= 40
    ids = np.unique(found.sample(2_000).ids)
    assert len(ids) == found.stats().drawable < 80 - lost  # with windows of two steps, more than those lost are gone
    found.save(tmp_path / "again")
    buffer.save(tmp_path / "whole")
    one, two = (
        relive.load(tmp_path / name, item=relive.Transitions(n_step=2)).read(ids) for name in ("again", "whole")
    )
    assert_same_batch(one, two)


class OwnSampler(relive.Uniform):
    """A class that a save only names."""


def test_salvage_says_how_to_give_a_sampler_of_ones_own(tmp_path, capsys):
    buffer_of(OwnSampler()).save(tmp_path / "save")
    assert main(["salvage", str(tmp_path / "save"), str(tmp_path / "new")]) == 2
    assert "OwnSampler` - at `salvage(sampler)`: from Python: `relive.checkpoints" in capsys.readouterr().err
    assert salvage(tmp_path / "save", tmp_path / "new", sampler=OwnSampler()).lost == (0, 0)


@pytest.mark.parametrize("lost", ["file", "index"])
def test_salvage_copies_sound_trajectories(lost, tmp_path, capsys):
    with TrajectoryReplayBuffer(tmp_path / "replay") as buffer:
        for length in (3, 4, 5):
            buffer.add_trajectories([Trajectory(rewards=np.full((length, 2, 1), length, np.float32))])
    damage(tmp_path / "replay" / "trajectory_000000000001.safetensors", -40)
    if lost == "index":
        (tmp_path / "replay" / "index.sqlite").write_bytes(b"no index")
    before = {file.name: file.read_bytes() for file in (tmp_path / "replay").iterdir()}
    out = out_of(capsys, "salvage", str(tmp_path / "replay"), str(tmp_path / "new"))
    assert "trajectory_000000000001.safetensors" in out
    assert {file.name: file.read_bytes() for file in (tmp_path / "replay").iterdir()} == before
    assert inspect(tmp_path / "new").lengths == (3, 4, 5)
    assert inspect(tmp_path / "new").trajectories == 2
    assert "All 2 trajectories are intact." in out_of(capsys, "verify", str(tmp_path / "new"))
    with TrajectoryReplayBuffer(tmp_path / "new") as again:
        assert len(again) == 2
