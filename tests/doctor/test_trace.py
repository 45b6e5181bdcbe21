"""`trace`: three short episodes, and every item that a pipeline stores of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from depth import some
from styles import MISTAKES, Loop

from relive.cli import main
from relive.doctor import Trace, examine, pipelines, trace
from relive.doctor._catalogue import CATALOGUE

# One environment has no lanes to mix up, the observations of a view that is kept are those of the newest episode, and
# rewards of three short episodes need no rounding.
HIDDEN = ("one window for all", "a view", "rewards as", "half precision")
TABLE_A = [probe for probe, check in CATALOGUE.items() if check.table == "A"]
SHOWN = [
    (style, mistake, cause)
    for style, mistake, cause in MISTAKES
    if any(cause in probe for probe in TABLE_A) and not mistake.startswith(HIDDEN)
]


def test_a_right_buffer_has_every_step_once_in_every_state() -> None:
    found = trace(pipelines.named("relive"))
    assert len(found.states) == 3 * 3 * 2
    for state in found.states:
        assert [item.obs for item in state.items] == [obs for obs, _, _ in found.steps]
        assert not state.missing
        for item in state.items:
            assert (item.reward, item.discount) == item.right[:2] if item.right else False
            assert not item.faults
    assert found.steps[:5] == ((0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4), (100, 9, 101))


@pytest.mark.parametrize(
    ("end", "n_step", "right"),
    [
        ("truncated", 1, [(2, 3, 0.5, 3), (3, 4, 0.5, 4)]),
        ("truncated", 3, [(2, 5, 0.25, 4), (3, 4, 0.5, 4)]),
        ("terminated", 1, [(2, 3, 0.5, 3), (3, 4, 0, 4)]),
        ("terminated", 3, [(2, 5, 0, 4), (3, 4, 0, 4)]),
    ],
)
def test_targets_at_an_end_worked_out_by_hand(end: str, n_step: int, right: list[Any]) -> None:
    """Check rewards 3 and 4, gamma 1/2; 4 is the final observation."""
    states = trace(pipelines.named("relive"), n_steps=n_step, modes="same_step").states
    items = next(state for state in states if state.end == end).items
    assert [(item.obs, *item.right) for item in items[2:4] if item.right] == right


@pytest.mark.parametrize(("style", "mistake", "cause"), some(SHOWN, 4))
def test_a_mistake_shows_in_the_trace_as_in_the_report(style: type[Loop], mistake: str, cause: str) -> None:
    """Check that the probes are those of table A; a missing step has no item."""
    traced = trace(lambda: style(mistake), n_steps=(1, 3))
    report = examine(lambda: style(mistake), n_steps=(1, 3))
    probes = {probe for state in traced.states for item in state.items for probe in item.faults}
    if any(state.missing for state in traced.states):
        probes.add("step missing")
    assert any(cause in probe for probe in probes)
    assert probes <= {finding.probe for finding in report.findings if finding.table == "A"}


def test_what_is_wrong_has_the_right_value_beside_it() -> None:
    state = trace(pipelines.named("fasttd3"), n_steps=1).states[0]
    item = state.items[3]
    assert (item.obs, item.next_obs, item.right, item.faults) == (
        3,
        100,
        (4.0, 0.5, 4.0),
        ("wrong next_obs bootstrapped",),
    )
    assert item.to_list() == [3, 4, 0.5, 100, ["wrong next_obs bootstrapped"], [4, 0.5, 4]]
    assert state.wrong == 3


@pytest.mark.parametrize(
    ("words", "status", "states"),
    [
        (["relive", "--trace", "--mode", "same_step"], 0, 6),
        (["relive-by-hand", "--trace", "--mode", "next_step", "--n-step", "2"], 1, 2),
        (["lerobot", "--trace"], 1, 2),
    ],
)
def test_the_command_prints_it(words: list[str], status: int, states: int, capsys: Any) -> None:
    assert main(["doctor", *words]) == status
    found = json.loads(capsys.readouterr().out)
    assert found["pipeline"] == words[0]
    assert set(found) == {"pipeline", "gamma", "steps", "states"}
    assert len(found["states"]) == states
    assert all(set(state) == {"autoreset_mode", "n_step", "end", "items", "missing"} for state in found["states"])


def test_numbers_that_json_cannot_say_are_none() -> None:
    class Empty:
        def run(self, make_env: Any, *_: Any, **__: Any) -> None:
            env = make_env()
            for _ in range(20):
                env.reset()
                while not any(env.step(0)[2:4]):
                    pass

        def items(self) -> list[Any]:
            return [(float("nan"), 1.0, 0.5, 1), (0, float("inf"), 0.5, 1)]

    found = trace(Empty, n_steps=1, modes="disabled")
    assert isinstance(found, Trace)
    values = [item[:4] for item in found.to_dict()["states"][0]["items"]]
    assert sorted(values, key=str) == [[0, None, 0.5, 1], [None, 1, 0.5, 1]]
    assert len(found.states[0].missing) == 11
    json.dumps(found.to_dict(), allow_nan=False)
