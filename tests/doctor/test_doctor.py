"""The doctor finds every planted fault, and nothing where all is right."""

from __future__ import annotations

import json
import random
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs
from styles import Given, Numbered, Stored, Whole

import relive
from relive.cli import main
from relive.doctor import Item, Pipeline, drawings, examine, pipelines
from relive.doctor._pipeline import mode_of
from relive.doctor.pipelines import _relive
from relive.errors import ArgumentError

ROOT = Path(__file__).parent
README = (ROOT.parents[1] / "README.md").read_text("utf-8")


def without_draws(kind: Any) -> Any:
    """Make a class of pipelines that have tables A and B alone."""
    return type(kind.__name__, (kind,), dict.fromkeys(("sample", "update", "arrays", "choose", "probability")))


def test_nothing_is_wrong_with_a_right_buffer() -> None:
    report = examine(Whole())
    assert report.right, report.findings
    assert not report.findings
    assert not report.skipped
    assert {check.table for check in report.checks} == {"A", "B", "C", "D", "F"}
    of = {(c.autoreset_mode, c.n_step): c.of for c in report.checks if c.probe == "phantom step"}
    assert of == {(mode, n): 200 if mode == "next_step" else 240 for mode, n in of}
    assert len(of) == 6
    assert examine(Whole, n_steps=1, modes="disabled").right


class LateWindows(_relive.RecordedWindows):
    """Shows the oldest observation of a window for the anchor's."""

    def items(self) -> Item:
        return (found := _relive.Recorded.items(self))._replace(obs=found.obs[:, 0])


class WindowsByHand(_relive.RecordedWindows, _relive.ByHand):
    """Adds every call, as if every autoreset mode were the same."""


@pytest.mark.parametrize(
    ("pipeline", "probes"),
    [
        (_relive.RecordedWindows, set()),
        (
            LateWindows,
            {"wrong reward", "wrong discount", "wrong next_obs bootstrapped", "step missing", "step stored twice"},
        ),
        (WindowsByHand, {"phantom step"}),
    ],
)
def test_faults_of_windows(pipeline: Any, probes: set[str]) -> None:
    report = examine(without_draws(pipeline), n_steps=[1], modes=["next_step"])
    found = {finding.probe for finding in report.findings if finding.table == "A"}
    assert found == probes


def test_a_ring_of_its_own_size_is_overwritten_before_late_priorities_come() -> None:
    class OneRing(Numbered):
        def run(self, *args: Any, autoreset_mode: Any) -> None:
            super().run(*args, autoreset_mode=autoreset_mode, capacity=100)

    report = examine(OneRing(), n_steps=1, modes="disabled")
    assert report.right, report.findings
    assert "late priorities" in {check.probe for check in report.checks}


def test_without_the_optional_parts_the_tables_they_need_are_left_out() -> None:
    class Plain(Stored):
        def run(self, *args: Any, autoreset_mode: Any) -> None:
            super().run(*args, autoreset_mode=autoreset_mode)

    assert isinstance(Plain(), Pipeline)
    report = examine(Plain())
    assert report.right
    assert {check.table for check in report.checks} == {"A"}
    assert report.skipped[:3] == (
        "give `run` an argument `capacity=None` to check a ring that wraps, too",
        "give `run` an argument `reset_at=()` to check resets in mid-episode, too",
        "give the class `sample` and `update` methods to check priorities, too",
    )


def test_modes_and_steps_are_chosen() -> None:
    report = examine(Stored(), n_steps=2, modes="SAME_STEP")
    assert {(check.autoreset_mode, check.n_step) for check in report.checks} == {("same_step", 2)}
    modes = gymnasium.vector.AutoresetMode
    assert [mode_of(name) for name in ("next_step", "NextStep", modes.DISABLED)] == [modes.NEXT_STEP] * 2 + [
        modes.DISABLED
    ]


def test_no_global_generator_moves() -> None:
    class Drawing(Stored):
        def run(self, *args: Any, **choices: Any) -> None:
            np.random.seed(1)
            random.random()
            super().run(*args, **choices)

    before = np.random.get_state()[1].tolist(), random.getstate()
    examine(Drawing(), n_steps=[1], modes=["disabled"])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


@pytest.mark.parametrize(
    ("item", "form"),
    [
        (Item(np.array([0.0]), 1.0, 0.5, np.array([[7.0, 1.0]])), "arrays; a stack's newest frame counts"),
        ((0, 1, 0.5, 1), "a tuple"),
        ({"obs": 0, "reward": 1, "bootstrap": 0.5, "next_obs": 1}, "a mapping"),
    ],
)
def test_forms_of_items(item: Any, form: str) -> None:
    assert examine(Given((item, Item(0, 1, 0.5, 1))), n_steps=[1]).findings[0].probe == "step stored twice", form


@pytest.mark.parametrize(
    ("pipeline", "choices", "text"),
    [
        (object(), {}, "Expected a pipeline, with methods `run` and `items`, got `object`"),
        (Given([(1, 2)]), {}, "Expected items `(obs, reward, bootstrap, next_obs)`, each a number, got `tuple`"),
        (Given([("x", 1, 1, 1)]), {}, "each a number"),
        (Stored(), {"modes": ["never"]}, "Expected one of `next_step`, `same_step`, `disabled`, got `never`"),
        (Stored(), {"modes": []}, "Expected at least one of"),
        (Stored(), {"n_steps": [0]}, "Expected integers from 1 to 50, got `0`"),
    ],
)
def test_what_is_no_pipeline_is_refused(pipeline: Any, choices: Any, text: str) -> None:
    with pytest.raises(relive.ArgumentError, match="Expected") as caught:
        examine(pipeline, **choices)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "status", "tables"),
    [
        ("relive-windows", 0, ""),
        ("relive-by-hand", 1, "A"),
        ("fasttd3", 1, "ABD"),
        ("styles:Stored", 0, ""),
        ("user_pipeline:ends", 1, "A"),
    ],
)
def test_the_command_says_it_by_its_status_and_in_json(
    name: str, status: int, tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text = "from styles import Stored\ndef ends():\n    return Stored('done either')\n"
    (tmp_path / "user_pipeline.py").write_text(text)
    monkeypatch.chdir(tmp_path)  # modules in the current folder are found
    page = tmp_path / "report.html"
    assert main(["doctor", name, "--json", "--html", str(page)]) == status
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"pipeline", "right", "findings"}
    assert (found["pipeline"], found["right"]) == (name, status == 0)
    assert "".join(sorted({finding["table"] for finding in found["findings"]})) == tables
    keys = {"probe", "table", "autoreset_mode", "n_step", "wrong", "of", "example", "remedy"}
    assert all(set(finding) == keys for finding in found["findings"])
    written = page.read_text()
    assert name in written
    assert "<script" not in written
    assert "://" not in written


@pytest.mark.parametrize("plain", [False, True])
def test_the_verdict_comes_first_and_tables_when_asked_for(
    plain: bool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check without the libraries of the other commands, too."""
    for name in ("rich", "rich.table", "rich.console", "tyro", "torch", "psutil") if plain else ():
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    monkeypatch.setattr("relive.doctor.examine", cache(examine))  # of the same words one examination shows both
    words = ["doctor", "relive-by-hand", "--n-step", "1", "--mode", "next_step"]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 bug in relive-by-hand"
    assert lines[2] == "1. phantom step: 40 of 240"
    assert lines[4].startswith("   remedy: the call after")
    assert main([*words, "--verbose"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[:5] == lines[:5]
    for text in ("\nA. Items", "\nC. Priorities", "\nnot examined:\n  give the class"):
        assert text in out


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["relive"], "no bug in relive: 87 checks of 1,580 items"),
        (["relive", "--n-step", "3", "--mode", "same_step"], "no bug in relive: 32 checks of 342 items"),
        *((line.split()[3:4], line) for line in re.findall(r"^\d bugs? in (?:relive\.)?sb3-learn$", README, re.M)),
    ],
)
def test_the_first_line_is_the_verdict(words: list[str], verdict: str, capsys: Any) -> None:
    if "sb3" in words[0]:
        needs("stable_baselines3")
    main(["doctor", *words])
    assert capsys.readouterr().out.splitlines()[0] == verdict


class ByHand:
    """A newcomer's buffer: five bugs, and a `run` without `autoreset_mode`."""

    def run(self, make_env: Any, num_envs: int, calls: int, n_step: int, gamma: float, capacity: Any = None) -> None:
        self.steps: list[Any] = []
        envs = gymnasium.vector.SyncVectorEnv([make_env] * num_envs)
        obs, _ = envs.reset()
        for _ in range(calls):
            next_obs, reward, terminated, truncated, _ = envs.step(np.zeros(num_envs, int))
            done = terminated | truncated
            for lane in range(num_envs):
                item = float(obs[lane, 0]), reward[lane], gamma * ~done[lane], float(next_obs[lane, 0])
                if capacity and len(self.steps) >= capacity:
                    self.steps[self.at % capacity] = item  # type: ignore[has-type]
                else:
                    self.steps.append(item)
                self.at = len(self.steps) if not capacity or len(self.steps) < capacity else self.at + 1
            obs = next_obs

    def items(self) -> Any:
        return self.steps

    def sample(self, n: int) -> Any:
        at = np.random.randint(0, len(self.steps) - 1, n)
        return [Item(*self.steps[i], handle=int(i)) for i in at]

    def update(self, handles: Any, td_errors: Any) -> None:
        pass


def test_five_bugs_are_told_in_25_lines_and_always_the_same(tmp_path: Path, capsys: Any) -> None:
    told = []
    for _ in range(2):
        main(["doctor", "test_doctor:ByHand", "--badge", str(tmp_path / "badge.json")])
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    lines = told[0].splitlines()
    assert lines[0] == "5 bugs in test_doctor:ByHand"
    assert len(lines) <= 25
    badge = json.loads((tmp_path / "badge.json").read_text())
    assert badge == {"schemaVersion": 1, "label": "relive doctor", "message": "5 bugs", "color": "red"}


def test_modes_and_n_are_words() -> None:
    report = examine(lambda: Stored("done either"))
    assert [(bug.probe, bug.where) for bug in report.bugs] == [("truncation taken for an end", "in all three modes")]
    report = examine(lambda: Stored("gamma once"))
    assert [bug.where for bug in report.bugs] == ["in all three modes, for n = 3"]
    assert report.bugs[0].example.startswith("obs 0, env 0, episode 0 (is truncated after 5 steps), step 0: bootstrap")


def test_the_template_is_a_pipeline_without_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert main(["doctor", "--template"]) == 0
    (tmp_path / "my_doctor.py").write_text(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "my_doctor:make"]) == 0
    assert main(["doctor", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{listed}" for name in pipelines.KNOWN)


def test_the_page_draws_the_items() -> None:
    made = without_draws(pipelines.named("relive-by-hand"))
    report = examine(made, n_steps=1, modes="next_step", name="mine")
    [(title, drawing)] = drawings(made, report)
    assert title == "phantom step (NEXT_STEP, n = 1, episodes truncated)"
    assert drawing.count("<line") == 15
    assert drawing.count("stroke-dasharray") == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nonsense", "Expected one of `relive`"),
        ("no_such_module:function", "a module `no_such_module` that can be imported"),
        ("styles:nothing", "Expected a function `nothing` in `styles`, got none"),
        ("styles:MISTAKES", "Expected a pipeline, with methods `run` and `items`, got `tuple`"),
        ("broken:make", "Expected a pipeline that runs, got `ZeroDivisionError: division by zero`"),
        ("broken:raises", "Expected a pipeline, got `RuntimeError: no` - at `broken:raises`"),
        ("broken:idle", "Expected a run that steps its environments, got no step"),
        ("broken:named", "Expected an integer, got `<bound method named.lanes"),
    ],
)
def test_an_unknown_or_broken_pipeline_has_status_2(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    broken = "from styles import Ring\nclass make(Ring):\n    def run(self, *args, **choices): 1 / 0\n"
    broken += (
        "def raises(): raise RuntimeError('no')\nclass idle(Ring):\n    def run(self, *args, **choices): pass\n"
        "class named(Ring):\n    def lanes(self): return 5\n"
    )
    (tmp_path / "broken.py").write_text(broken)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", name]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "one"),
    [(["--modes", "same_step"], "--mode"), (["--modes=next_step"], "--mode"), (["--n-steps", "3"], "--n-step")],
)
def test_the_plural_of_an_option_names_the_option(words: list[str], one: str, capsys: Any) -> None:
    assert main(["doctor", "relive", *words]) == 2
    assert f"Expected `{one}`, got `{one}s` - at `relive doctor`: give one, or " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["stable_baselines3", "tianshou", "cpprb", "torchrl", "torch"])
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    short = {"stable_baselines3": "sb3", "torch": "fasttd3"}.get(name, name)
    for loaded in [name, *(module for module in sys.modules if module.startswith(f"{name}."))]:
        monkeypatch.setitem(sys.modules, loaded, None)
    assert main(["doctor", short]) == 2
    assert f"Expected the package `{name}`, got none - at `relive.doctor`: pip install" in capsys.readouterr().err


def test_every_name_has_a_pipeline() -> None:
    for name in pipelines.KNOWN:
        assert callable(pipelines.named(name).run), name


class Handled(tuple):
    """An item as a tuple that has a handle besides."""

    def __new__(cls, values: Any, handle: Any, weight: float = 1.0) -> Handled:
        made = super().__new__(cls, values)
        made.handle, made.weight = handle, weight
        return made


def test_a_tuple_keeps_its_handle_and_its_weight() -> None:
    from relive.doctor._pipeline import stored

    item = stored(Handled((1.0, 2.0, 0.5, 3.0), handle="here", weight=0.25), "Mine.sample")
    assert (item.handle, item.weight, item.reward) == ("here", 0.25, 2.0)
    plain = stored((1.0, 2.0, 0.5, 3.0, "there", 0.75), "Mine.sample")
    assert (plain.handle, plain.weight) == ("there", 0.75)


def test_drawn_items_without_a_handle_are_refused_by_name() -> None:
    class Bare(Numbered):
        def sample(self, n: int) -> Any:
            return [(1.0, 2.0, 0.5, 3.0)] * n

    with pytest.raises(ArgumentError, match=r"Expected items with a `handle`, .*, got one without - at `Bare.sample`"):
        examine(Bare(), n_steps=(1,), modes=("next_step",))
