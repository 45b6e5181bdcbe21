"""What the recorder of simulators refuses, what it says once, and how it goes on after something raised."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from kept_buffer import KeptBuffer
from tensor_worlds import (
    JAX,
    LANES,
    Around,
    BraxAutoResetWrapper,
    BraxCounters,
    IsaacLike,
    ManiSkillVectorEnv,
    MjLike,
    TensorEnvs,
    box,
)

import relive
from relive.errors import ArgumentError, ReliveWarning, SchemaError
from relive.simulators import Recorder, schema_of

ACTION = torch.zeros(LANES, 1)
F = relive.Field


def recorder_of(env: Any, **choices: Any) -> Recorder:
    return Recorder(env, KeptBuffer(schema_of(env), LANES), **choices)


def steps(recorder: Recorder, many: int) -> None:
    for _ in range(many):
        recorder.step(ACTION)


class DirectMARLEnv(IsaacLike):
    """Named as Isaac Lab's class for several agents."""


class Nameless(TensorEnvs):
    def __init__(self) -> None:
        super().__init__(AutoresetMode.DISABLED)
        self.metadata = {}


class Merged(IsaacLike):
    """The two flags as one, as rsl_rl's wrappers return them."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, extras = super().step(action)
        return obs, reward, terminated | truncated, extras


class Arrays(TensorEnvs):
    def reset(self, **choices: Any) -> Any:
        obs, infos = super().reset(**choices)
        return obs.numpy(), infos


def isaac(**obs: Any) -> relive.Schema:
    return relive.Schema(obs=obs, action=F(1))


PARTS = {"policy": F(3), "critic": F((2, 3))}
FLAT = relive.Schema(obs=F(3), action=F(1))
MODE_TEXT = "an autoreset mode: `NEXT_STEP`, `SAME_STEP`, `DISABLED`, got `None` - at `Recorder(env)`: state it"
# The environment, the schema, what else the recorder or the buffer is given, and what the error says.
CONSTRUCTORS: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no environment": (lambda: 3, FLAT, {}, "environment with `num_envs`, or one of MuJoCo Playground's, got `3`"),
    "several agents": (DirectMARLEnv, isaac(**PARTS), {}, "an environment of one agent, got `DirectMARLEnv`"),
    "no mode": (Nameless, FLAT, {}, MODE_TEXT),
    "another mode": (
        ManiSkillVectorEnv, FLAT, {"autoreset_mode": "NEXT_STEP"},
        "`SAME_STEP`, as the environment says, got `NEXT_STEP` - at `Recorder(autoreset_mode)`: leave it out",
    ),
    "lanes": (IsaacLike, isaac(**PARTS), {"lanes": 4}, "a buffer with num_envs=5, as the environment has, got `4`"),
    "device": (IsaacLike, isaac(**PARTS), {"device": "meta"}, "a buffer on `cpu`, as the environment is, got `meta`"),
    "a missing group": (
        IsaacLike, isaac(actor=F(3)), {},
        "one of `['critic', 'policy']`, which the environment has, got `actor` - at `obs`",
    ),
    "another shape": (
        IsaacLike, isaac(policy=F(4)), {},
        "shape `(3,)`, as the environment has, got shape `(4,)` - at `obs.policy`",
    ),
    "no groups": (
        IsaacLike, FLAT, {},
        "a mapping of `['critic', 'policy']`, as the environment has, got shape `(3,)` - at `obs`",
    ),
    "actions": (
        IsaacLike, relive.Schema(obs=PARTS, action=F(2)), {},
        "shape `(1,)`, as the environment has, got shape `(2,)` - at `action`",
    ),
    "dtype of the first observation": (
        IsaacLike, isaac(policy=F(3, "float64")), {},
        "`float64` of shape `(5, 3)` on `cpu`, got `float32` of shape `(5, 3)` on `cpu` - at `obs.policy`",
    ),
    "arrays": (
        lambda: Arrays(AutoresetMode.DISABLED), FLAT, {},
        "a tensor, got `ndarray` - at `obs`: `relive.gymnasium.Recorder` is for environments of NumPy arrays",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_recorder_that_cannot_be(name: str) -> None:
    make, schema, choices, text = CONSTRUCTORS[name]
    lanes, device = choices.get("lanes", LANES), choices.get("device", "cpu")
    buffer: Any = SimpleNamespace(schema=schema, num_envs=lanes, device=device)
    with pytest.raises((ArgumentError, SchemaError)) as caught:
        Recorder(make(), buffer, autoreset_mode=choices.get("autoreset_mode")).reset()
    assert text in str(caught.value)


def test_holding_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"Recorder\(hold\)"):
        Recorder(object(), object(), hold=True)  # type: ignore[arg-type]


def test_hidden_spaces_are_not_asked() -> None:
    """Check that the first wrapper, which may change observations, decides."""

    class Hiding(gymnasium.Wrapper):  # type: ignore[misc,type-arg]
        def __init__(self, env: Any) -> None:
            self.env = env

        def reset(self, **choices: Any) -> Any:
            obs, extras = self.env.reset(**choices)
            return {"both": obs["critic"]}, extras

    recorder = Recorder(Hiding(IsaacLike()), KeptBuffer(isaac(both=F((2, 3))), LANES))
    obs, _ = recorder.reset()
    assert list(obs) == ["both"]


def test_the_order_of_calls() -> None:
    recorder = recorder_of(IsaacLike())
    with pytest.raises(ArgumentError, match="Expected `reset` before the first `step`"):
        recorder.step(ACTION)
    with pytest.raises(ArgumentError, match="Expected a reset of all lanes, got one of some lanes"):
        recorder.reset(env_ids=[1])
    with pytest.raises(ArgumentError, match="Expected arguments by name"):
        recorder.reset(7)
    recorder.reset(seed=7)
    with pytest.raises(ArgumentError, match=r"got `mask`, which comes from the environment - at `mask`"):
        recorder.step(ACTION, mask=ACTION)
    recorder.step(ACTION)
    assert recorder.ids.tolist() == list(range(LANES))


def test_flags_merged_into_one_are_refused() -> None:
    recorder = recorder_of(Merged())
    recorder.reset()
    with pytest.raises(ArgumentError, match=r"five values .* got 4 .* put the recorder around the simulator's own"):
        recorder.step(ACTION)
    with pytest.raises(ArgumentError, match=r"before the next `step`.* call `reset` for all lanes"):
        recorder.step(ACTION)
    with pytest.raises(ArgumentError, match="Expected a reset of all lanes"):
        recorder.reset(env_ids=[0])


@pytest.mark.parametrize("env_ids", [[1, 3], np.array([1, 3]), torch.tensor([1, 3], dtype=torch.int32), slice(1, 4, 2)])
def test_lanes_of_a_reset_in_every_form(env_ids: Any) -> None:
    recorder = recorder_of(IsaacLike())
    recorder.reset()
    recorder.env.world.restart()
    recorder.step(ACTION)
    recorder.reset(env_ids=env_ids)
    assert recorder.buffer.cuts == [list(range(LANES)), [1, 3]]
    mask = torch.tensor([False, True, False, True, False])
    gym = recorder_of(TensorEnvs(AutoresetMode.SAME_STEP))
    gym.reset()
    gym.reset(options={"reset_mask": mask})
    assert gym.buffer.cuts == [list(range(LANES)), [1, 3]]
    with pytest.raises(ArgumentError, match="Expected a mask of shape"):
        gym.reset(options={"reset_mask": mask[:2]})


def test_what_continues() -> None:
    """Check all except the step after an environment was reset alone; the stand-in checks for that."""
    recorder = recorder_of(IsaacLike())
    recorder.reset()
    for _ in range(2):
        before, _, _, _, _ = recorder.step(ACTION)
    before = {name: part.clone() for name, part in before.items()}
    after, _ = recorder.reset(env_ids=[2])
    others = [0, 1, 3, 4]
    assert after.keys() == before.keys()
    assert torch.equal(after["policy"][others], before["policy"][others])
    assert not torch.equal(after["policy"][2], before["policy"][2])
    after["policy"].zero_()  # it is the caller's
    steps(recorder, 2)
    recorder.resume(recorder.env.obs_buf)
    recorder.step(ACTION)
    assert [call["continues"] for call in recorder.buffer.calls] == [True, True, True, True, False]
    assert recorder.buffer.twins[0].stats().cuts == 1


@pytest.mark.parametrize("moved", [True, False])
def test_a_step_that_raises_is_lost_and_the_streams_are_cut(moved: bool) -> None:
    env = IsaacLike()
    buffer = KeptBuffer(schema_of(env), LANES)
    recorder = Recorder(env, buffer)
    recorder.reset()
    steps(recorder, 3)
    if moved:  # the buffer refuses the action
        with pytest.raises(ArgumentError):
            recorder.step(ACTION[:, 0])
    else:
        env.step, step = lambda action: 1 / 0, env.step
        with pytest.raises(ZeroDivisionError):
            recorder.step(ACTION)
        env.step = step
        with pytest.raises(ArgumentError, match="so its state is unknown"):
            recorder.step(ACTION)
        recorder.reset()
    assert recorder.ids is None
    assert buffer.cuts[1] == list(range(LANES))
    steps(recorder, 40)  # the stand-in asserts that what is said to continue does
    for twin in buffer.twins:
        for batch in twin.batches(100, shuffle=False):
            before, after = batch.obs["policy"], batch.next_obs["policy"]
            assert (before[:, :2] == after[:, :2]).all()
            assert (after[:, 2] - before[:, 2] == batch.steps).all()


def test_lanes_that_wait_are_left_out_after_an_error() -> None:
    recorder = recorder_of(TensorEnvs(AutoresetMode.NEXT_STEP))
    recorder.reset()
    for step in range(60):
        waiting = recorder.env.ended.clone()
        if step % 5 == 4:
            with pytest.raises(ArgumentError):
                recorder.step(ACTION[:, 0])
            assert recorder.buffer.cuts[-1] == list(range(LANES))
        else:
            recorder.step(ACTION)
            assert torch.equal(recorder.ids < 0, waiting)


@pytest.mark.parametrize("make", [IsaacLike, MjLike, lambda finals: TensorEnvs(AutoresetMode.SAME_STEP, finals)])
def test_a_missing_final_observation_is_said_once(make: Any) -> None:
    recorder = recorder_of(make(False))
    recorder.reset()
    with pytest.warns(ReliveWarning) as said:
        steps(recorder, 60)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert str(said[0].message) == (
        f"Expected a final observation with every truncated step of {recorder.simulator.name}, got steps without - at "
        f"`Recorder.step`: {recorder.simulator.remedy}; without, such items are drawn with discount 0"
    )
    assert recorder.buffer.twins[0].stats().unbootstrapped > 1


def test_as_an_error_it_refuses_a_step_that_changed_nothing() -> None:
    env, moves = IsaacLike(False), 0

    def counted(action: Any, step: Any = env.step) -> Any:
        nonlocal moves
        moves += 1
        return step(action)

    env.step = counted  # type: ignore[method-assign]
    recorder = recorder_of(env)
    recorder.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ReliveWarning):
            steps(recorder, 60)
        assert len(recorder.buffer.calls) == moves
        recorder.step(ACTION)
    assert len(recorder.buffer.calls) == moves
    assert recorder.buffer.calls[-1]["continues"]
    assert len(recorder.buffer.cuts) == 1


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_in_inference_mode_and_out_of_it() -> None:
    """Step in it, as collectors do, and draw outside of it, as learners do."""
    recorder = recorder_of(IsaacLike(False))
    with torch.inference_mode():
        recorder.reset()
        steps(recorder, 3)
    steps(recorder, 3)
    with torch.inference_mode():
        recorder.reset(env_ids=[0])
        steps(recorder, 3)
    steps(recorder, 3)
    net = torch.nn.Linear(3, 1)
    net(recorder.buffer.real.sample(8).obs["policy"]).sum().backward()
    assert torch.isfinite(net.weight.grad).all()


def test_terminated_steps_without_a_final_observation_are_no_mistake() -> None:
    """Check a task of finite horizon, in which the time limit is an end like others."""
    recorder = recorder_of(IsaacLike(False, is_finite_horizon=True))
    recorder.reset()
    steps(recorder, 60)
    twin = recorder.buffer.twins[0]
    ends = next(twin.batches(1000, shuffle=False))
    assert twin.stats().unbootstrapped == 0
    assert ends.terminated.any()
    assert not ends.truncated.any()


def test_playground_where_the_resetting_wrapper_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", JAX)
    recorder = recorder_of(Around(BraxAutoResetWrapper(BraxCounters())))
    recorder.reset(range(LANES))
    with pytest.warns(ReliveWarning, match=r"AutoResetWrapper_final_obs"):
        steps(recorder, 60)
    with pytest.raises(SchemaError, match=r"shape `\(5, 3\)`.* got `float32` of shape `\(4, 3\)`"):
        recorder.reset(range(4))


def test_schemas_of_spaces_and_of_observations() -> None:
    group = SimpleNamespace(spaces={"joint": box(7), "cam": gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
    space = SimpleNamespace(spaces={"policy": group, "critic": SimpleNamespace(shape=(9,))})
    action = SimpleNamespace(spaces={"arm": box(2), "grip": gymnasium.spaces.Discrete(2)})
    env = SimpleNamespace(num_envs=2, single_observation_space=space, single_action_space=action)
    fields = {"policy": {"joint": F(7), "cam": F((8, 8, 3), "uint8")}, "critic": F(9)}
    schema = schema_of(env, log_prob=F())
    assert repr(schema) == repr(relive.Schema(obs=fields, action={"arm": F(2), "grip": F((), "int64")}, log_prob=F()))
    seen = schema_of(env, {"policy": torch.zeros(2, 5, dtype=torch.uint8)})
    assert repr(seen.tree["obs"]) == repr({"policy": F(5, "uint8")})
    sizes = SimpleNamespace(observation_size={"state": np.int64(7), "map": (4, 4)}, action_size=2)
    assert repr(schema_of(sizes)) == repr(relive.Schema(obs={"state": F(7), "map": F((4, 4))}, action=F(2)))
    with pytest.raises(SchemaError, match="Expected a space with a shape"):
        schema_of(SimpleNamespace(num_envs=2))


def test_everything_else_is_the_environments_own() -> None:
    recorder = recorder_of(IsaacLike())
    assert recorder.cfg is recorder.env.cfg
    assert recorder.unwrapped is recorder.env
    assert recorder.num_envs == LANES
    assert "Recorder" in repr(recorder)
    with pytest.raises(AttributeError):
        recorder._hidden  # noqa: B018
