"""Files of data sets: each one's targets are those that a slow reading of the same file gives, or it is refused."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from depth import LONG

import relive
from relive._adapters.names import role_of
from relive.minari import from_arrays

GAMMA, FILES = 0.9, 1000 if LONG else 125
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
        self.form = str(rng.choice(["flat", "episodes", "steps", "rlds"]))
        self.lengths = rng.integers(1, 6, rng.integers(1, 5))
        self.ends = rng.choice(["terminal", "timeout", "nothing"], len(self.lengths))
        self.finals = self.form == "rlds" or bool(rng.random() < 0.5)
        wild = 0.0 if rng.random() < 0.4 else 0.3
        self.names = {role: self._name(role, wild) for role in CALLED}
        if self.form == "rlds":
            self.names |= {"terminated": "is_terminal"}
        self.given = {}
        for role, name in self.names.items():
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
            if self.form == "rlds":
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
                    named[name] = ~values if name == "not_done" else values
            if self.form == "rlds":
                named["is_last"] = np.arange(length + 1) == length
                named["is_first"] = np.arange(length + 1) == 0
                named["discount"] = np.ones(length + 1)
            entries = len(named[self.names["action"]])
            named |= {name: self.rng.random(entries) for name in self.beside if name not in named}
            parts.append(named)
        if self.form == "flat":
            return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if self.form == "steps" and not self.finals:
            return [
                [{name: values[t] for name, values in part.items()} for t in range(length)]
                for length, part in zip(self.lengths, parts, strict=True)
            ]
        return [{"steps": part} for part in parts] if self.form == "rlds" else parts

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
            assert batch.obs[row, 0] == steps[place].obs
            assert batch.steps[row] == length
            assert batch.reward[row] == pytest.approx(reward)
            assert batch.discount[row] == pytest.approx(discount), (steps, file.data(), file.given)
            if discount:
                assert batch.next_obs[row, 0] == after
            drawn += 1
    # The stream of flat arrays goes on behind them unless they say that it ends, so windows up to there wait.
    assert drawn >= len(steps) - (n if file.form == "flat" else 0)
    return "taken"


@pytest.mark.parametrize("n", [1, 3])
def test_every_file_is_right_or_refused(n: int) -> None:
    results = Counter((file.form, run(file, n)) for file in map(File, range(FILES)))
    assert all(results[form, "taken"] >= 5 for form in ("flat", "episodes", "steps", "rlds")), results
    assert sum(count for (_, result), count in results.items() if result == "refused") >= 25, results


def plain(**more: Any) -> dict[str, Any]:
    """Make three steps without an end."""
    return {"observations": np.arange(3.0)[:, None], "actions": np.zeros((3, 1)), "rewards": np.ones(3)} | more


NAMES = (
    *("dones", "done", "terminal", "timeout", "is_done", "dones_float", "not_dones", "masks", "mask", "discounts"),
    *("next_obs", "next_observation", "obs_next", "next_states", "new_obs", "final_observation", "absorbing"),
    *("reward", "sparse_rewards", "rewards_to_go", "episode_ends", "TimeLimit.truncated", "timed_out_done"),
)


@pytest.mark.parametrize("form", ["flat", "episodes", "steps"])
@pytest.mark.parametrize("name", NAMES)
def test_what_looks_like_an_end_a_successor_or_a_reward_is_refused_by_name(name: str, form: str) -> None:
    data: Any = plain(terminals=np.zeros(3), timeouts=np.array([0, 0, 1]), **{name: np.array([0.0, 0, 1])})
    if form == "steps":
        data = [[{key: values[t] for key, values in data.items()} for t in range(3)]]
    elif form == "episodes":
        data = [data]
    with pytest.raises(relive.SchemaError, match=f"a use of `{name}`") as caught:
        from_arrays(data)
    assert f'="{name}"' in str(caught.value)  # what to write
    if "." not in name and name not in ("mask", "reward", "next_obs"):
        kept = from_arrays(data, extras=[name])
        assert kept.column(name).max() == 1


def test_the_call_that_made_wrong_targets_is_refused_by_name() -> None:
    data = [{"obs": np.arange(4.0)[:, None], "actions": np.zeros((3, 1)), "rewards": np.ones(3), "dones": [0, 0, 1]}]
    with pytest.raises(relive.SchemaError, match="a use of `dones`, which has the name of an end"):
        from_arrays(data)
    with pytest.raises(relive.SchemaError, match="an array `done` in an episode, got"):
        from_arrays(data, terminals="done")
    buffer = from_arrays(data, terminals="dones")
    assert next(buffer.batches(3, shuffle=False)).discount.tolist() == pytest.approx([0.99, 0.99, 0.0])


@pytest.mark.parametrize("argument", [*ARGUMENTS.values()])
def test_a_name_that_was_given_has_to_be_in_every_episode(argument: str) -> None:
    roles = {name: role for role, name in ARGUMENTS.items()}
    columns = plain(terminals=np.zeros(3), timeouts=np.zeros(3), next_observations=np.arange(1.0, 4)[:, None])
    renamed = {("other" if name == argument else name): values for name, values in columns.items()}
    assert len(from_arrays([renamed, renamed], **{argument: "other"})) == 6
    with pytest.raises(relive.SchemaError, match=r"an array `other` in an episode, got .* - at `\$\[1\]`"):
        from_arrays([renamed, columns], **{argument: "other"})
    with pytest.raises(relive.SchemaError, match="an array `other`, got"):
        from_arrays(columns, **{argument: "other"})
    assert roles[argument]


def test_names_that_only_some_steps_have_are_refused() -> None:
    steps = [{"observation": [float(t)], "action": 0, "reward": 1.0} for t in range(3)]
    steps[1]["is_terminal"] = True
    with pytest.raises(relive.SchemaError, match="`is_terminal` in every step, got 2 of 3 without it"):
        from_arrays([steps])
    del steps[1]["is_terminal"]
    steps[2]["is_terminal"] = True
    with pytest.raises(relive.SchemaError, match="`is_terminal` in every step"):
        from_arrays([steps])


def test_the_last_entry_of_rlds_may_lack_an_action() -> None:
    steps = [{"observation": [float(t)], "action": 0, "reward": float(t), "is_last": t == 3} for t in range(4)]
    del steps[-1]["action"]
    batch = next(from_arrays([steps]).batches(3, shuffle=False))
    assert batch.reward.tolist() == [0, 1, 2]
    assert batch.next_obs[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"is_first": [1, 0, 1, 0]}, "`is_first` that tells the same ends"),
        ({"is_last": [0, 1, 0, 1]}, "`is_last` that tells the same ends"),
        ({"discount": [1, 0, 1, 1]}, "`discount` that tells the same ends"),
        ({"discount": [0.9, 0.9, 0.9, 0.9]}, "`discount` that tells the same ends"),
        ({"reward": [1.0] * 6}, "6 entries, one per step, got 3"),
        ({"is_terminal": [0, 0, 2, 0]}, "flags, 0 or 1, got `2`"),
    ],
)
def test_fields_of_rlds_may_not_tell_other_ends(change: dict[str, Any], text: str) -> None:
    episode: dict[str, Any] = {"observation": np.arange(4.0)[:, None], "action": np.zeros(4), "reward": np.ones(4)}
    episode |= {"is_first": [1, 0, 0, 0], "is_last": [0, 0, 0, 1], "is_terminal": [0, 0, 0, 1]}
    assert len(from_arrays([episode | {"discount": [1, 1, 0, 1]}])) == 3
    with pytest.raises(relive.SchemaError, match=text):
        from_arrays([{"steps": episode | change}])
    with pytest.raises(relive.SchemaError, match="a use of `terminal`"):
        from_arrays([{"steps": episode, "terminal": True}])


def test_entries_are_never_cut_off_in_silence() -> None:
    with pytest.raises(relive.SchemaError, match="4 entries, one per step, got 3 - at"):
        from_arrays([plain(rewards=np.ones(4))])
    with pytest.raises(relive.SchemaError, match="entries, one per step, got 6 - at"):
        from_arrays([plain(observations=np.zeros((6, 1)))])
    final = plain(observations=np.arange(4.0)[:, None], next_observations=np.arange(1.0, 4)[:, None])
    assert next(from_arrays([final]).batches(3, shuffle=False)).next_obs[-1] == 3
    final["next_observations"][-1] = 7
    with pytest.raises(relive.SchemaError, match="`next_observations` whose last entry is the final observation"):
        from_arrays([final])


def test_numbers_of_episodes_tell_ends_in_flat_arrays() -> None:
    with pytest.raises(relive.SchemaError, match="a use of `episode_index`"):
        from_arrays(plain(terminals=np.zeros(3), timeouts=np.zeros(3), episode_index=[0, 0, 1]))
    assert len(from_arrays([plain(episode_index=[0, 0, 0])], extras=())) == 3


def test_other_arrays_are_named_and_can_be_kept() -> None:
    data = plain(terminals=np.zeros(3), timeouts=np.zeros(3), infos={"qpos": np.arange(3.0), "goal": {"x": np.ones(3)}})
    with pytest.warns(relive.ReliveWarning, match=r"Left out `infos/goal/x`, `infos/qpos` - .*extras=\["):
        from_arrays(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays(data, extras=(), timeouts="timeouts")
        both = from_arrays(data, extras=["infos/qpos", "infos/goal/x"])
    assert both.column("infos.qpos").max() == 2
    assert from_arrays(data, extras=["infos"]).column("infos.goal.x").max() == 1
    with pytest.raises(relive.SchemaError, match="an array `infos/qvel`"):
        from_arrays(data, extras=["infos/qvel"])


def test_dtypes_are_those_that_were_asked_for() -> None:
    data = plain(terminals=np.zeros(3), timeouts=np.zeros(3), rewards=np.full(3, 1e-300))
    kept = from_arrays(data, float_dtype=None)
    assert kept.schema.reward.dtype == np.float64
    assert kept.column("reward").max() == 1e-300
    assert from_arrays(data).schema.reward.dtype == np.float32
    assert from_arrays(data, float_dtype="float64").schema.reward.dtype == np.float64
    assert from_arrays(data, float_dtype="float16").schema.reward.dtype == np.float32
    assert from_arrays(data | {"rewards": [1, 2, 3]}, float_dtype=None).schema.reward.dtype == np.float32
    with pytest.raises(relive.SchemaError, match="a value that `float32` can hold"):
        from_arrays(data | {"rewards": np.full(3, 1e300)})
    with pytest.raises(relive.SchemaError, match="float_dtype"):
        from_arrays(data, float_dtype="int32")


@pytest.mark.parametrize(
    "name", ["qpos", "end_effector", "action_mask", "next_actions", "last_action", "success", "costs", "firstname"]
)
def test_other_names_are_free(name: str) -> None:
    assert role_of(name) is None
    with pytest.warns(relive.ReliveWarning, match=f"Left out `{name}`"):
        from_arrays(plain(terminals=np.zeros(3), timeouts=np.zeros(3), **{name: np.zeros(3)}))


def test_files_of_robomimic_and_tianshou(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    obs = np.arange(4.0, dtype=np.float32)[:, None]
    with h5py.File(tmp_path / "robomimic.hdf5", "w") as file:
        for number in range(2):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"], demo["rewards"], demo["dones"] = np.zeros((3, 2)), np.ones(3), [0, 0, 1]
            demo["obs/eef"], demo["next_obs/eef"], demo["states"] = obs[:-1], obs[1:], np.zeros((3, 5))
        demos = [file["data"][name] for name in file["data"]]
        with pytest.raises(relive.SchemaError, match=r"a use of `(dones|next_obs)`"):
            from_arrays(demos)
        buffer = from_arrays(demos, terminals="dones", next_observations="next_obs", extras=["states"])
        batch = next(buffer.batches(6, shuffle=False))
        assert (batch.discount == 0).tolist() == [False, False, True] * 2
        assert batch.next_obs["eef"][:2, 0].tolist() == [1, 2]
    with h5py.File(tmp_path / "tianshou.hdf5", "w") as file:
        names = {"observations": "obs", "actions": "act", "rewards": "rew"}
        names |= {"terminals": "terminated", "timeouts": "truncated", "next_observations": "obs_next"}
        file["obs"], file["act"], file["rew"], file["obs_next"] = obs[:-1], np.zeros(3), np.ones(3), obs[1:]
        file["terminated"], file["truncated"], file["done"] = [0, 0, 0], [0, 0, 1], [0, 0, 1]
        file["info/TimeLimit.truncated"] = [0, 0, 1]
        with pytest.raises(relive.SchemaError, match="a use of `done`"):
            from_arrays(file, **names)
        with pytest.raises(relive.SchemaError, match=r"a use of `info/TimeLimit\.truncated`"):
            from_arrays(file, **names, extras=["done"])
        buffer = from_arrays(file, **names, extras=["done", "info/TimeLimit.truncated"])
        assert next(buffer.batches(3, shuffle=False)).truncated.tolist() == [False, False, True]
