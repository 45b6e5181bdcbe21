"""What a user sees at the prompt, in a notebook and in an editor."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

import relive
from relive.errors import ReliveWarning


def filled(**choices: object) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((8, 8), "uint8", stack=2, pad="first"), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 200, num_envs=2, seed=0, sampler=relive.Prioritized(), **choices)
    frames = np.zeros((2, 2, 8, 8), np.uint8)
    for t in range(60):
        ends = np.full(2, t % 10 == 9)
        later = np.stack([frames[:, 1], np.full((2, 8, 8), t + 1, np.uint8)], 1)
        buffer.add(
            obs=frames, action=[0, 0], reward=[t, 2 * t], next_obs=later, terminated=ends, truncated=[False, False]
        )
        frames = np.repeat(later[:, 1:], 2, 1) + 1 if t % 10 == 9 else later
    buffer.update_priorities(buffer.sample(8).ids, np.arange(8.0))
    return buffer


def test_statistics_are_a_table_and_flat_for_a_logger() -> None:
    stats = filled().stats()
    lines = str(stats).splitlines()
    assert len({len(line) for line in lines}) == 1, "aligned"
    assert any(line.split() == ["capacity", "200"] for line in lines)
    flat = stats.flat("replay/")
    assert flat["replay/size"] == 120
    assert flat["replay/priority_quantiles/100"] == stats.priority_quantiles[-1]
    assert flat["replay/draw_age/mean"] == stats.draw_age[0]
    assert all(isinstance(value, int | float) for value in flat.values())
    assert eval(repr(stats), {"Stats": relive.Stats}) == stats


def test_parts_of_statistics_are_flat_too(tmp_path: Path) -> None:
    buffer = filled(limiter=relive.RateLimiter(1.0, 1, 1e6))
    with buffer.autosave(tmp_path):
        flat = buffer.stats().flat()
    assert flat["autosave/number"] >= 1
    assert any(name.startswith("limiter/") for name in flat)


@pytest.mark.parametrize("what", [lambda b: b, lambda b: b.sample(4), lambda b: b.stats()])
def test_a_notebook_shows_a_table(what: object) -> None:
    shown = what(filled())._repr_html_()
    assert shown.count("<table>") == shown.count("</table>") == 1
    assert "<script" not in shown


def test_a_long_batch_is_one_field_a_line() -> None:
    batch = filled().sample(4)
    lines = repr(batch).splitlines()
    assert lines[0] == "Batch("
    assert "    reward=float32[4]," in lines
    assert max(map(len, lines)) <= 88
    assert repr(relive.Batch({"reward": np.ones(2)})) == "Batch(reward=float64[2])"


def test_a_report_of_a_buffer_as_it_is(tmp_path: Path) -> None:
    path = filled().report(tmp_path / "replay.html")
    page = Path(path).read_text("utf-8")
    for part in ("steps stored", "Rewards", "Episode lengths", "Priorities", "Ages", "data:image/png", "Prioritized("):
        assert part in page
    assert "12 whole" not in page
    assert "<dt>whole episodes</dt><dd>12 " in page
    assert "<script" not in page
    empty = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 10)
    assert "<dd>0 " in Path(empty.report(tmp_path / "empty.html")).read_text("utf-8")


def test_not_finite_values_are_said_once_if_asked_for() -> None:
    schema = relive.Schema(obs={"a": relive.Field((2,))}, action=relive.Field())
    step = {"obs": {"a": [0, 0]}, "action": 0, "reward": 0, "next_obs": {"a": [0, np.nan]}}
    step |= {"terminated": False, "truncated": False}
    for asked in (True, False):
        buffer = relive.ReplayBuffer(schema, 10, check_finite=asked)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                buffer.add(**step)
        texts = [str(each.message) for each in said if "not finite" in str(each.message)]
        assert texts == ["1 of 2 values are not finite - at `next_obs.a`: they are stored as they are"] * asked
        assert len(buffer) == 3
    buffer = relive.ReplayBuffer(schema, 10, check_finite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ReliveWarning, match="not finite"):
            buffer.add(**step)
    assert not len(buffer)


def test_tab_finds_what_is_installed_and_no_internals() -> None:
    found = dir(relive)
    assert {"ReplayBuffer", "Prioritized", "errors", "doctor", "trajectories"} <= set(found)
    assert not {"batch", "buffer", "items", "samplers", "schema", "storage"} & set(found)
    for name, library in {"sb3": "stable_baselines3", "tianshou": "tianshou", "gymnasium": "gymnasium"}.items():
        assert (name in found) == (importlib.util.find_spec(library) is not None)


def test_an_adapter_shows_its_buffer() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.DQN("MlpPolicy", "CartPole-v1", buffer_size=100, replay_buffer_class=relive.sb3.ReplayBuffer)
    assert repr(model.replay_buffer).startswith("relive.sb3.ReplayBuffer(ReplayBuffer(0 of 100 steps")


TYPED = """
import numpy as np
import relive

buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 100)
batch = buffer.sample(4)
reveal_type(batch.ids)
reveal_type(batch.weights)
reveal_type(batch.reward)
reveal_type(batch.terminated)
tensors = batch.torch()
reveal_type(tensors.reward)
reveal_type(tensors.discount)
reveal_type(tensors.ids)
with buffer.prefetch(4, to="torch") as batches:
    reveal_type(next(batches).reward)
"""
EXPECTED = ["signedinteger", "floating", "ndarray", "bool", "Tensor", "Tensor", "Tensor", "Any"]


def revealed(command: list[str], tmp_path: Path) -> list[str]:
    script = tmp_path / "typed.py"
    script.write_text(textwrap.dedent(TYPED))
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, cwd=Path(relive.__file__).parents[2])
    assert "error:" not in done.stdout, done.stdout
    return [line for line in done.stdout.splitlines() if "evealed type" in line or "Type of" in line]


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_fields_of_a_batch_have_types(checker: str, tmp_path: Path) -> None:
    for needed in (checker, "torch"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"there is no {needed}")
    command = [sys.executable, "-m", checker, *(["--strict", "--follow-imports=silent"] if checker == "mypy" else [])]
    lines = revealed(command, tmp_path)
    assert len(lines) == len(EXPECTED), lines
    for line, wanted in zip(lines, EXPECTED, strict=True):
        assert wanted in line, line
