"""Files of data sets: each one's targets are those that a slow reading of the same file gives, or it is refused."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from depth import LONG

import relive
from relive._base.nests import mapped, zipped
from relive.minari import from_arrays

GAMMA, FILES = 0.9, 1000 if LONG else 125
FORMS = ("flat", "episodes", "steps", "rlds", "rlds steps", "rlds list")
# What libraries call the same; the first ones are those that `from_arrays` looks for by itself.
CALLED = {
    "obs": ("observations", "observation", "obs", "state"),
    "action": ("actions", "action", "act"),
    "reward": ("rewards", "reward", "rew", "next.reward"),
    "terminated": ("terminals", "is_terminal", "terminations", "terminated", "dones", "done", "terminal", "not_done"),
    "truncated": (
        "timeouts",
        "truncations",
        "truncated",
        "timeout",
        "TimeLimit.truncated",
        "infos/TimeLimit.truncated",
    ),
    "next_obs": ("next_observations", "next_obs", "next_observation", "obs_next", "next", "obs2"),
}
ARGUMENTS = {"obs": "observations", "action": "actions", "reward": "rewards", "terminated": "terminals"}
ARGUMENTS |= {"truncated": "timeouts", "next_obs": "next_observations"}
BESIDE = ("qpos", "infos/qpos", "reward_to_go", "masks", "discounts", "is_first", "episode_ends", "sparse_reward")


# About truncations whose successor the file does not have.
pytestmark = pytest.mark.filterwarnings("ignore:Expected a final observation:relive.ReliveWarning")


class Step(NamedTuple):
    """A step as the file has it; `after` is None where the file does not tell."""

    obs: float
    reward: float
    terminated: bool
    truncated: bool
    after: float | None
    follows: bool  # whether the next step of the list is the next one of the stream


def target(steps: list[Step], place: int, n: int) -> tuple[float, float, float | None, int]:
    """Compute reward, discount, next observation and length of a window, one step after the other."""
    total, discount = 0.0, 1.0
    for length in range(1, n + 1):
        step = steps[place + length - 1]
        total, discount = total + discount * step.reward, discount * GAMMA
        if step.terminated or step.truncated or not step.follows or length == n:
            gone = step.terminated or step.after is None
            return total, 0.0 if gone else discount, step.after, length
    raise AssertionError


class File:
    """A random file, what it says, and the arguments that somebody may give."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.form = str(rng.choice(FORMS))
        self.rlds, self.nested = self.form.startswith("rlds"), bool(rng.random() < 0.2)
        self.floats = self.form in ("flat", "episodes") and bool(rng.random() < 0.3)  # flags as columns of numbers
        self.lengths = rng.integers(1, 6, rng.integers(1, 5))
        self.ends = rng.choice(["terminal", "timeout", "nothing"], len(self.lengths))
        self.finals = self.rlds or bool(rng.random() < 0.5)
        wild = 0.0 if rng.random() < 0.4 else 0.3
        self.names = {role: self._name(role, wild) for role in CALLED}
        if self.rlds:
            self.names |= {"terminated": "is_terminal"}
        self.given = {}
        for role, name in self.names.items():
            if self.rlds and role in ("truncated", "next_obs"):
                continue  # it has neither
            if rng.random() < (0.8 if name not in CALLED[role][:1] else 0.1) and name != "not_done":
                self.given[ARGUMENTS[role]] = name
        self.beside = [str(name) for name in rng.choice(BESIDE, rng.integers(0, 2) if wild else 0)]
        self.extras = [name for name in self.beside if rng.random() < 0.5]
        self.flagged = {role: bool(rng.random() < 0.85) for role in ("terminated", "truncated")}
        self.next = self.form == "flat" and self.finals

    def _name(self, role: str, wild: float) -> str:
        names = CALLED[role]
        if self.rng.random() < wild:
            return str(self.rng.choice(names))
        return names[0] if self.form == "flat" else str(self.rng.choice(names[:2]))

    def columns(self) -> list[dict[str, Any]]:
        """Return the arrays of every episode by role; RLDS's have one entry more."""
        found = []
        for number, (length, end) in enumerate(zip(self.lengths, self.ends, strict=True)):
            obs = 100.0 * number + np.arange(length + 1.0)
            last = np.arange(length) == length - 1
            part = {"obs": obs[:, None], "action": np.zeros((length, 1)), "reward": obs[:-1] * 0.5 + 1}
            part |= {"terminated": last & (end == "terminal"), "truncated": last & (end == "timeout")}
            if self.next:
                part["next_obs"] = part["obs"][1:]
            if self.rlds:
                part["action"] = np.zeros((length + 1, 1))
                part["reward"] = np.append(part["reward"], 99.0)
                part["is_last"] = np.arange(length + 1) == length
                part["terminated"] = part.pop("is_last") & (end == "terminal")
                del part["truncated"]
            elif self.form == "flat" or not self.finals:
                part["obs"] = part["obs"][:-1]
            found.append(part)
        return found

    def data(self) -> Any:
        """Return the file's contents."""
        parts = []
        for length, part in zip(self.lengths, self.columns(), strict=True):
            named = {}
            for role, values in part.items():
                if self.flagged.get(role, True):
                    name = self.names.get(role, role)
                    values = ~values if name == "not_done" else values
                    named[name] = values.astype(np.float32)[:, None] if self.floats and role in self.flagged else values
                if self.nested and role in ("obs", "next_obs"):
                    named[name] = {"a": values, "b": {"c": (values % 7).astype(np.uint8)}}
            if self.rlds:
                named["is_last"] = np.arange(length + 1) == length
                named["is_first"] = np.arange(length + 1) == 0
                named["discount"] = np.ones(length + 1)
            named |= {name: self.rng.random(self.entries(named)) for name in self.beside if name not in named}
            parts.append(named)
        if self.form == "flat":
            return zipped(lambda *values: np.concatenate(values), *parts)
        if self.form in ("rlds steps", "rlds list") or (self.form == "steps" and not self.finals):
            parts = [[mapped(lambda x, t=t: x[t], part) for t in range(self.entries(part))] for part in parts]
        return [{"steps": part} for part in parts] if self.form in ("rlds", "rlds steps") else parts

    def entries(self, part: dict[str, Any]) -> int:
        return len(part[self.names["action"]])

    def steps(self) -> list[Step]:
        """List the steps, as a reader of the file would who knows the meaning of its names."""
        found = []
        for number, (length, end) in enumerate(zip(self.lengths, self.ends, strict=True)):
            for t in range(length):
                last, obs = t == length - 1, 100.0 * number + t
                terminated = last and end == "terminal" and self.flagged["terminated"]
                truncated = last and end == "timeout" and self.flagged["truncated"]
                after: float | None = obs + 1
                follows = not last
                if self.form == "flat" and last and not self.next:  # then the next line continues, if no flag is set
                    following = number + 1 < len(self.lengths)
                    follows = following and not (terminated or truncated)
                    after = 100.0 * (number + 1) if follows else None
                elif last and not self.finals:
                    after = None
                found.append(Step(obs, obs * 0.5 + 1, terminated, truncated, after, follows))
        return found


def run(file: File, n: int) -> str:
    item = relive.Transitions(n_step=n, gamma=GAMMA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", relive.ReliveWarning)
        try:
            buffer = from_arrays(file.data(), extras=file.extras, item=item, **file.given)
        except relive.ReliveError:
            return "refused"
    steps = file.steps()
    ids = np.sort(buffer.column("ids")[buffer.column("ids") >= 0])
    assert len(buffer) == len(steps)
    drawn = 0
    for batch in buffer.batches(64, shuffle=False):
        for row, name in enumerate(batch.ids):
            place = int(np.searchsorted(ids, name))
            reward, discount, after, length = target(steps, place, n)
            assert (batch.obs.a if file.nested else batch.obs)[row, 0] == steps[place].obs
            assert batch.steps[row] == length
            assert batch.reward[row] == pytest.approx(reward)
            assert batch.discount[row] == pytest.approx(discount), (steps, file.data(), file.given)
            if discount:
                assert (batch.next_obs.a if file.nested else batch.next_obs)[row, 0] == after
            drawn += 1
    # The stream of flat arrays goes on behind them unless they say that it ends, so windows up to there wait.
    assert drawn >= len(steps) - (n if file.form == "flat" else 0)
    return "taken"


@pytest.mark.parametrize("n", [1, 3])
def test_every_file_is_right_or_refused(n: int) -> None:
    results = Counter((file.form, run(file, n)) for file in map(File, range(FILES)))
    assert all(results[form, "taken"] >= 5 for form in FORMS), results
    assert sum(count for (_, result), count in results.items() if result == "refused") >= 25, results
