"""What a user sees at the prompt, in a notebook and in an editor."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from scalars import SCHEMA, lived, rolled, step

import relive
from relive.errors import ReliveWarning


def filled(**choices: object) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((8, 8), "uint8", stack=2, pad="first"), action=relive.Field())
    buffer = rolled(schema, 60, 200, lanes=2, length=10, sampler=relive.Prioritized(), **choices)
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
    assert "<dd>0 " in Path(lived(0).report(tmp_path / "empty.html")).read_text("utf-8")


def test_the_other_buffers_have_a_page_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    runs = relive.TrajectoryReplayBuffer(seed=0)
    runs.add_trajectories([relive.Trajectory(rewards=np.zeros((5, 2, 1)))])
    for buffer, said in ((relive.DeviceBuffer(SCHEMA, 64, device="cpu"), "0 of 64"), (runs, "chunk-steps")):
        page = Path(buffer.report(tmp_path / "page.html")).read_text("utf-8")
        assert said in page
        assert said in buffer._repr_html_()
        with pytest.raises(relive.ArgumentError, match=r"report\(path\)"):
            buffer.report(None)


MISTAKES = {
    "b[3]": "a buffer is not indexed: `sample",
    "[step for step in b]": "a buffer is not indexed: `sample",
    "setattr(b, 'sampler', relive.Uniform())": "`sampler` is chosen when a buffer is made",
    "b.push(1)": r"use `buffer.add\(obs=",
    "b.size": r"use `len\(buffer\)`",
    "b.update_priority": "use `buffer.update_priorities",
    "b.sampel(4)": "use `buffer.sample`",
    "b._steps": "no attribute '_steps'$",
    "b.sample(4).dones": "did you mean `terminated`",
    "b.sample(4).to('cuda')": r"did you mean `batch.torch\(device\)`",
    "b.add(np.zeros(3), 0.5)": r"buffer.add\(obs=|positional",
    "b.add(obs=(np.zeros(3), {}), action=0, reward=0, terminated=False, truncated=False)": "obs, info = env.reset",
    "b.extend(obs=np.zeros(3), action=0, reward=0, terminated=False, truncated=False)": "`add` takes a single step",
    "b.sample()": r"sample\(batch_size\)|missing",
    "relive.ReplayBuffer(b.schema, 10, samplr=b.sampler)": "did you mean `sampler`",
    "relive.Prioritized(aplha=1)": "Prioritized has alpha, beta",
    "relive.Schema(obs=(3,), action=relive.Field())": r"such as `relive.Field\(\(3,\)\)`",
    "relive.gymnasium.Recorder(b.schema, b.schema)": "Expected a `gymnasium.Env`",
}


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_at_the_prompt_is_answered(call: str) -> None:
    pytest.importorskip("gymnasium")
    with pytest.raises((TypeError, AttributeError, relive.ReliveError), match=MISTAKES[call]):
        eval(call, {"b": filled(), "relive": relive, "np": np})


def test_a_closed_buffer_can_be_shown() -> None:
    buffer = filled()
    buffer.close()
    assert repr(buffer) == "ReplayBuffer(closed)"


def test_not_finite_values_are_said_once_if_asked_for() -> None:
    schema = relive.Schema(obs={"a": relive.Field((2,))}, action=relive.Field())
    given = step(obs={"a": [0, 0]}, next_obs={"a": [0, np.nan]})
    for asked in (True, False):
        buffer = relive.ReplayBuffer(schema, 10, check_finite=asked)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                buffer.add(**given)
        texts = [str(each.message) for each in said if "not finite" in str(each.message)]
        assert texts == ["1 of 2 values are not finite - at `next_obs.a`: they are stored as they are"] * asked
        assert len(buffer) == 3
    buffer = relive.ReplayBuffer(schema, 10, check_finite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ReliveWarning, match="not finite"):
            buffer.add(**given)
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
reveal_type(batch.obs)
reveal_type(batch.obs.astype(int))
reveal_type(batch.mask)
reveal_type(batch.ids)
reveal_type(batch.weights)
reveal_type(batch.reward)
reveal_type(batch.terminated)
tensors = batch.torch()
reveal_type(tensors.obs)
reveal_type(tensors.action.long())
reveal_type(tensors.reward)
reveal_type(tensors.discount)
reveal_type(tensors.ids)
with buffer.prefetch(4, to="torch") as batches:
    reveal_type(next(batches).reward)
"""
EXPECTED = ["Values", "ndarray", "bool", "signedinteger", "floating", "ndarray", "bool", *["Tensor"] * 5, "Any"]


def revealed(command: list[str], tmp_path: Path) -> list[str]:
    script = tmp_path / "typed.py"
    script.write_text(textwrap.dedent(TYPED))
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, cwd=Path(relive.__file__).parents[2])
    assert "error:" not in done.stdout, done.stdout
    return [line for line in done.stdout.splitlines() if "evealed type" in line or "Type of" in line]


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_fields_of_a_batch_have_types(checker: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", checker, *(["--strict", "--follow-imports=silent"] if checker == "mypy" else [])]
    if checker == "pyright" and shutil.which("pyright"):  # npm's
        command = ["pyright", "--pythonpath", sys.executable]
    elif importlib.util.find_spec(checker) is None:
        pytest.skip(f"there is no {checker}")
    pytest.importorskip("torch")
    lines = revealed(command, tmp_path)
    assert len(lines) == len(EXPECTED), lines
    for line, wanted in zip(lines, EXPECTED, strict=True):
        assert wanted in line, line
