"""What the recorder refuses: unknown environments, wrong modes, steps of lanes that ended and were not reset."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import Counting, length
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import relive
from relive.errors import ArgumentError
from relive.gymnasium import Recorder

LANES = 3


def vector(mode: AutoresetMode = AutoresetMode.DISABLED) -> SyncVectorEnv:
    return SyncVectorEnv([lambda i=i: Counting(i) for i in range(LANES)], autoreset_mode=mode)


def buffer_for(lanes: int) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(relive.Schema(obs=relive.Field(3), action=relive.Field(1)), 300, num_envs=lanes)


class VecEnv:
    num_envs = LANES


class DummyVecEnv(VecEnv):
    """As Stable-Baselines3 names them."""


class OldStep(Counting):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class OldReset(Counting):
    def reset(self, **_: Any) -> Any:
        return super().reset()[0]


def nameless() -> SyncVectorEnv:
    envs = vector()
    envs.metadata = {}
    return envs


# fmt: off
CONSTRUCTORS = {
    "Stable-Baselines3": (DummyVecEnv, None,
     "Expected a Gymnasium environment, got `DummyVecEnv`, a Stable-Baselines3 `VecEnv`, whose `step` returns four "
     "values - at `Recorder(env)`: its algorithms take `replay_buffer_class=relive.sb3.ReplayBuffer`; in a loop "),
    "no environment": (lambda: 3, None,
     "Expected a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, or an environment with `num_envs`, got `3` - at "),
    "a class": (lambda: Counting, None,
     "Expected a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, or an environment with `num_envs`, got `<class"),
    "other lanes": (Counting, None,
     "Expected a buffer with num_envs=1, as the environment has, got `3` - at `Recorder(buffer)`"),
    "no mode": (nameless, None,
     "Expected an autoreset mode: `NEXT_STEP`, `SAME_STEP`, `DISABLED`, got `None` - at `Recorder(env)`: state it: "
     "`Recorder(env, buffer, autoreset_mode=...)`"),
    "an unknown mode": (nameless, "never",
     "Expected an autoreset mode: `NEXT_STEP`, `SAME_STEP`, `DISABLED`, got `'never'` - at `Recorder(autoreset_mode)`"),
    "a mode of another kind": (nameless, ["NEXT_STEP"],
     "Expected an autoreset mode: `NEXT_STEP`, `SAME_STEP`, `DISABLED`, got `['NEXT_STEP']` - at `Recorder("),
    "another mode than it has": (vector, "SAME_STEP",
     "Expected `DISABLED`, as the environment's metadata say, got `SAME_STEP` - at `Recorder(autoreset_mode)`: leave "),
}
for name, wrap in (("one", Counting), ("one that resets itself", lambda: gymnasium.wrappers.Autoreset(Counting()))):
    CONSTRUCTORS[f"a mode of {name}"] = (wrap, "SAME_STEP",
     "Expected None, got `'SAME_STEP'` for a single environment - at")
FINALS = {
    "none at all": (lambda finals: None,
     "Expected `final_obs` where an episode ended in SAME_STEP mode, got none - at `infos`"),
    "none for the lane": (lambda finals: np.full(LANES, None, object),
     "Expected a final observation of shape `(3,)` for lane 0, whose episode ended, got none - at `infos.final_obs`"),
    "of another shape": (lambda finals: [np.float32(1)] * LANES,
     "Expected a final observation of shape `(3,)` for lane 0, whose episode ended, got shape `()` - at "),
    "too few": (lambda finals: [],
     "Expected final observations nested as observations are, got `IndexError: "),
}
# fmt: on


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_constructor_refuses(name: str) -> None:
    make, mode, text = CONSTRUCTORS[name]
    with pytest.raises(ArgumentError) as caught:
        Recorder(make(), buffer_for(1 if "a mode of one" in name else LANES), autoreset_mode=mode)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("stated", ["NEXT_STEP", "NextStep", AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("make", [nameless, lambda: vector(AutoresetMode.NEXT_STEP)])
def test_a_mode_may_be_stated(make: Any, stated: Any) -> None:
    recorder: Any = Recorder(make(), buffer_for(LANES), autoreset_mode=stated)
    assert recorder.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_a_single_environment_that_ended_must_be_reset() -> None:
    env = Counting()
    recorder = Recorder(env, buffer_for(1))
    with pytest.raises(ArgumentError, match="Expected `reset` before the first `step`, got none - at"):
        recorder.step(np.zeros(1))
    recorder.reset()
    for _ in range(length(0, 0)):
        recorder.step(np.zeros(1))
    text = "Expected an episode that goes on, got an episode that ended - at `Recorder.step`: call `reset` first"
    with pytest.raises(ArgumentError, match=text):
        recorder.step(np.zeros(1))
    assert env.t == length(0, 0)  # it was not stepped
    recorder.reset()
    recorder.step(np.zeros(1))
    assert recorder.buffer.stats().added == length(0, 0) + 1


def test_lanes_that_ended_must_be_reset_in_disabled_mode() -> None:
    envs = vector()
    recorder = Recorder(envs, buffer_for(LANES))
    with pytest.raises(ArgumentError, match=r"Expected a reset of all lanes, got a mask for lanes `.1.` - at"):
        recorder.reset(options={"reset_mask": np.array([False, True, False])})
    recorder.reset()
    ended = np.zeros(LANES, bool)
    while not ended.any():  # lane 0 has the shortest first episode
        ended = np.logical_or(*recorder.step(np.zeros((LANES, 1)))[2:4])
    assert ended.tolist() == [True, False, False]
    for mask in (None, ~ended):  # no lane was reset, and then only the others were
        if mask is not None:
            recorder.reset(options={"reset_mask": mask})
        before = [env.t for env in envs.envs]
        with pytest.raises(ArgumentError) as caught:
            recorder.step(np.zeros((LANES, 1)))
        assert str(caught.value) == (
            "Expected lanes in mid-episode, got lanes `[0]` that ended - at `Recorder.step`: "
            'call `reset(options={"reset_mask": mask})` first, with True for these'
        )
        assert [env.t for env in envs.envs] == before
    recorder.reset(options={"reset_mask": ended})
    recorder.step(np.zeros((LANES, 1)))
    assert len(recorder.ids) == LANES


@pytest.mark.parametrize("make", [OldStep, OldReset])
def test_the_methods_of_old_gym_are_refused(make: Any) -> None:
    recorder = Recorder(make(), buffer_for(1))
    call = recorder.reset
    if make is OldStep:
        recorder.reset()
        call = partial(recorder.step, np.zeros(1))
    with pytest.raises(ArgumentError, match=r"Expected (five values|`\(obs, info\)`) from the environment's"):
        call()


@pytest.mark.parametrize("name", ["obs", "reward", "terminated", "env_ids"])
def test_extras_cannot_replace_what_the_environment_returns(name: str) -> None:
    env = Counting()
    recorder = Recorder(env, buffer_for(1))
    recorder.reset()
    with pytest.raises(ArgumentError, match=f"Expected further fields of the schema, got `{name}`, which comes from"):
        recorder.step(np.zeros(1), **{name: 0})
    assert env.t == 0


@pytest.mark.parametrize("name", FINALS)
def test_final_observations_that_cannot_be_are_refused(name: str) -> None:
    change, text = FINALS[name]

    class Changed(gymnasium.vector.VectorWrapper):  # type: ignore[misc]
        def step(self, actions: Any) -> Any:
            *rest, infos = self.env.step(actions)
            return *rest, ({**infos, "final_obs": change(infos["final_obs"])} if "final_obs" in infos else infos)

    recorder = Recorder(Changed(vector(AutoresetMode.SAME_STEP)), buffer_for(LANES))
    recorder.reset()
    recorder.step(np.zeros((LANES, 1), np.float32))
    with pytest.raises(ArgumentError) as caught:
        recorder.step(np.zeros((LANES, 1), np.float32))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("mask", [[True, False], [[True, False, False]]])
def test_flags_that_are_not_one_a_lane_are_refused_and_change_nothing(mask: Any) -> None:
    envs, buffer = vector(), buffer_for(LANES)
    recorder = Recorder(envs, buffer)
    recorder.reset()
    obs, *_ = recorder.step(np.zeros((LANES, 1)))
    for call, at in (
        (lambda: recorder.reset(options={"reset_mask": mask}), 'Recorder.reset(options["reset_mask"])'),
        (lambda: recorder.resume(obs, mask), "Recorder.resume(ended)"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        shape = np.shape(mask)
        assert str(caught.value) == f"Expected flags of shape `({LANES},)`, got shape `{shape}` - at `{at}`"
    assert [env.t for env in envs.envs] == [1] * LANES
    recorder.step(np.zeros((LANES, 1)))
    assert buffer.stats().cuts == 0
