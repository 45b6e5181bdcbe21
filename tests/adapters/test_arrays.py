"""What `from_arrays` takes by which name, what it refuses by name, and what it warns of."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_data_files import ARGUMENTS

import relive
from relive._adapters.names import role_of
from relive.minari import from_arrays

# About truncations whose successor the file does not have.
pytestmark = pytest.mark.filterwarnings("ignore:Expected a final observation:relive.ReliveWarning")


def plain(**more: Any) -> dict[str, Any]:
    """Make three steps without an end; None leaves an array out."""
    data = {"observations": np.arange(3.0)[:, None], "actions": np.zeros((3, 1)), "rewards": np.ones(3)} | more
    return {name: values for name, values in data.items() if values is not None}


NONE = {"terminals": np.zeros(3), "timeouts": np.zeros(3)}


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
    columns = plain(**NONE, next_observations=np.arange(1.0, 4)[:, None])
    renamed = {("other" if name == argument else name): values for name, values in columns.items()}
    assert len(from_arrays([renamed, renamed], **{argument: "other"})) == 6
    with pytest.raises(relive.SchemaError, match=r"an array `other` in an episode, got .* - at `\$\[1\]`"):
        from_arrays([renamed, columns], **{argument: "other"})
    with pytest.raises(relive.SchemaError, match="an array `other`, got"):
        from_arrays(columns, **{argument: "other"})


def test_truncations_without_a_final_observation_are_told() -> None:
    data = plain(**NONE | {"timeouts": [0, 0, 1]})
    for given in (data, [data]):
        with pytest.warns(relive.ReliveWarning, match="a final observation with every truncated step"):
            buffer = from_arrays(given)
        batch = buffer.read(buffer.ids())
        assert (batch.truncated.tolist(), (batch.discount > 0).tolist()) == ([False, False, True], [True, True, False])
    assert from_arrays(data).capacity == 3


def test_without_timeouts_next_observations_tell_where_streams_end() -> None:
    data = plain(terminals=np.zeros(3), next_observations=np.array([1.0, 5, 3])[:, None])
    buffer = from_arrays(data, sampler=relive.Prioritized(), item=relive.Transitions(gamma=0.5), seed=3)
    assert (len(buffer), buffer.stats().cuts) == (3, 1)  # the other unmarked end is that of the data
    assert buffer.item == relive.Transitions(gamma=0.5)
    del data["next_observations"]
    with pytest.warns(relive.ReliveWarning, match="Expected an array `timeouts`, or `next_observations`, got"):
        from_arrays(data)
    from_arrays(data, timeouts=None)


def test_steps_in_any_order_are_kept_whole() -> None:
    order = np.random.default_rng(0).permutation(13)
    obs = order[:, None] * 1.0
    data = {"observations": obs, "next_observations": obs + 1, "actions": order, "rewards": order * 0.5}
    buffer = from_arrays(data | {"terminals": order % 4 == 3, "timeouts": order % 4 == 1})
    batch = next(buffer.batches(13, shuffle=False))
    assert (len(buffer), batch.obs.tolist(), batch.reward.tolist()) == (13, obs.tolist(), (order * 0.5).tolist())
    assert batch.next_obs[batch.discount > 0].tolist() == (obs + 1)[batch.discount > 0].tolist()


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (plain(actions=None), relive.SchemaError, "Expected an array `actions`, got `"),
        (plain(**NONE, rewards=np.zeros(2)), relive.SchemaError, "Expected 2 entries, one per step, got 3 - at `obs`"),
        (plain(terminals=np.zeros((3, 2))), relive.SchemaError, "Expected one number per step, got shape `(3, 2)`"),
        (plain(**NONE, actions=["a"] * 3), relive.SchemaError, "Expected an array of numbers, got `<U1`"),
        ([{"observations": [1.0]}], relive.SchemaError, "an array `actions` in an episode, got `observations`"),
        ([[1, 2]], relive.SchemaError, "Expected steps as mappings of names to values, got `int` - at `$[0]`"),
        ([], relive.ArgumentError, "Expected at least one step, got none"),
        ("d4rl", relive.ArgumentError, "Expected a mapping of names to arrays, or a list of episodes, got `str`"),
    ],
)
def test_what_does_not_fit_is_refused(data: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        from_arrays(data)
    assert text in str(caught.value)


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
        from_arrays(plain(**NONE, episode_index=[0, 0, 1]))
    assert len(from_arrays([plain(episode_index=[0, 0, 0])], extras=())) == 3


def test_other_arrays_are_named_and_can_be_kept() -> None:
    data = plain(**NONE, infos={"qpos": np.arange(3.0), "goal": {"x": np.ones(3)}})
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
    data = plain(**NONE, rewards=np.full(3, 1e-300))
    kept = from_arrays(data, float_dtype=None)
    assert (kept.schema.tree["obs"].dtype, kept.schema.reward.dtype) == (np.float64, np.float64)
    assert kept.column("reward").max() == 1e-300
    assert from_arrays(data).schema.reward.dtype == from_arrays(data).schema.tree["obs"].dtype == np.float32
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
        from_arrays(plain(**NONE, **{name: np.zeros(3)}))


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
