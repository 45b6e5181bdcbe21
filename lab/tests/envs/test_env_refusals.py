"""What environments refuse: arguments, actions, and steps outside an episode; a refused step changes nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from relive.errors import ArgumentError
from relive_lab.envs import PairsTradingEnv, PairsTradingVectorEnv, SyntheticMarket, ThresholdPolicy, TMazeEnv, evaluate
from relive_lab.envs.tensors import Pendulum, Reach

PAIRS, MAZE = "PairsTrading-v0", "TMaze-v0"
JUMP = "two numbers, the smaller first"
# Who refuses, for which arguments, what, and what is wanted instead.
ARGUMENTS: list[tuple[Callable[..., Any], str, str, tuple[Any, ...], str]] = [
    (SyntheticMarket, PAIRS, "cost holding_penalty", (-0.1, True, "free"), "a finite number >= 0"),
    (SyntheticMarket, PAIRS, "break_volatility break_factor dislocation_exit", (-1,), "a finite number >= 0"),
    (SyntheticMarket, PAIRS, "reward_scale sigma factor_volatility", (0, math.nan), "a finite number > 0"),
    (SyntheticMarket, PAIRS, "kappa dislocation_kappa", (0.0, 2), "a finite number > 0 and < 2"),
    (SyntheticMarket, PAIRS, "break_probability dislocation_probability", (1.5,), "a finite number >= 0 and <= 1"),
    (SyntheticMarket, PAIRS, "break_bars", (0.5,), "a finite number >= 1"),
    (SyntheticMarket, PAIRS, "horizon dislocation_bars warm_up", (0, 10.0), "an integer >= 1"),
    (SyntheticMarket, PAIRS, "z_window stat_window", (1,), "an integer >= 2"),
    (SyntheticMarket, PAIRS, "mode", ("crash",), "one of `'break'`, `'dislocation'`"),
    (SyntheticMarket, PAIRS, "dislocation_jump", ((16, 8), 8), JUMP),
    (PairsTradingEnv, PAIRS, "data", ("live",), "one of `'synthetic'`, `'real'`"),
    (PairsTradingEnv, PAIRS, "render_mode", ("ansi",), "one of `'human'`, `'rgb_array'`"),
    (PairsTradingVectorEnv, PAIRS, "num_envs", (0,), "an integer >= 1"),
    (ThresholdPolicy, PAIRS, "threshold", (0.0, -1.0, 30.0, math.nan, "wide"), "a finite number > 0 and < 30"),
    (lambda **given: evaluate(ThresholdPolicy(), **given), PAIRS, "episodes", (-1,), "an integer >= 1"),
    (lambda **given: evaluate(ThresholdPolicy(), **given), PAIRS, "seed", (-1,), "an integer >= 0"),
    (lambda **given: evaluate(ThresholdPolicy(), **given), PAIRS, "num_envs", (3,), "`episodes`"),
    (TMazeEnv, MAZE, "length", (0, 2.0, True), "an integer >= 1"),
    (TMazeEnv, MAZE, "render_mode", ("human",), "`None` or `ansi`"),
    (lambda num_envs: Pendulum(num_envs, limit=None), "Pendulum", "num_envs", (0,), "an integer >= 1"),
    (lambda limit: Reach(1, limit=limit), "Reach", "limit", (0,), "an integer >= 1"),
]


@pytest.mark.parametrize(("make", "env", "names", "values", "wanted"), ARGUMENTS)
def test_a_bad_argument_is_refused_by_name(make: Any, env: str, names: str, values: Any, wanted: str) -> None:
    for name in names.split():
        for value in values:
            text = f"Expected {wanted}, got `{value!r}` - at `{env}({name})`"
            with pytest.raises(ArgumentError, match=re.escape(text).replace("'3'", "3")):
                make(**{name: value})


SYNTHETIC, REAL = (f"with `data='{data}'` an argument out of `cost`, " for data in ("synthetic", "real"))
PARTICULAR: list[tuple[Callable[[], Any], str, str]] = [
    (
        lambda: SyntheticMarket(z_window=90),
        "at least 90 bars, got `61` - at `PairsTrading-v0(warm_up)`",
        ": the longest rolling window must be full",
    ),
    (lambda: SyntheticMarket(dislocation_jump=(-1, 8)), "a finite number >= 0, got `-1` - at", "(dislocation_jump)`"),
    (
        lambda: PairsTradingEnv(split="test"),
        SYNTHETIC,
        "got `split='test'` - at `PairsTrading-v0(split)`: it belongs to `data='real'`",
    ),
    (
        lambda: PairsTradingEnv(data="real", mode="break"),
        REAL,
        "got `mode='break'` - at `PairsTrading-v0(mode)`: it belongs to `data='synthetic'`",
    ),
    (lambda: PairsTradingEnv(sgima=1.0), SYNTHETIC, "got `sgima=1.0` - at `PairsTrading-v0(sgima)`"),
    (
        lambda: gymnasium.make_vec(f"relive/{PAIRS}", num_envs=2, render_mode="rgb_array"),
        "`None`, got `'rgb_array'` - at `PairsTrading-v0(render_mode)`: pass `vector",
        "",
    ),
    (
        lambda: started(PairsTradingEnv()).render(),
        "`human` or `rgb_array`, got `None` - at `PairsTrading-v0(render_mode)`: pass it to",
        "",
    ),
    (
        lambda: PairsTradingEnv(render_mode="rgb_array").render(),
        "an episode, got a picture before one - at `PairsTrading-v0.render`: call `reset` first",
        "",
    ),
    (
        lambda: TMazeEnv(render_mode="ansi").render(),
        "an episode, got a picture before one - at `TMaze-v0.render`: call `reset` first",
        "",
    ),
    (
        lambda: PairsTradingVectorEnv(2).step(np.zeros((2, 1))),
        "a running episode, got a step before the first - at",
        "",
    ),
]


@pytest.mark.parametrize(("call", "start", "end"), PARTICULAR)
def test_what_is_refused_for_reasons_of_its_own(call: Callable[[], Any], start: str, end: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(f"Expected {start}")
    assert str(caught.value).endswith(end)


def started(env: Any) -> Any:
    env.reset(seed=0)
    return env


ONE, BOTH = "one finite number in [-1, 1]", "numbers in [-1, 1] of shape `(2, 1)`"
SQUASH = ": clip or squash"
BAD_ACTIONS: list[tuple[Any, Any, Any, str]] = [
    *(
        (PairsTradingEnv, np.array([1.0]), bad, f"{ONE}, got `{bad!r}` - at `{PAIRS}.step(action)`{SQUASH}")
        for numbers in ([1.01], [-1.5], [np.nan], [np.inf])
        for bad in [np.array(numbers, np.float32)]
    ),
    *(
        (PairsTradingEnv, np.array([1.0]), bad, f"{ONE}, got `{bad!r}` - at `{PAIRS}.step(action)`{SQUASH}")
        for bad in (np.zeros(2), np.zeros((1, 2)), [], "x", 0.5)
    ),
    *(
        (lambda: PairsTradingVectorEnv(2), np.ones((2, 1)), bad, f"{BOTH}, got {got} - at `{PAIRS}.step(actions{at}")
        for bad, got, at in (
            (np.zeros((2, 2)), "shape `(2, 2)`", ")`"),
            (np.zeros(2), "shape `(2,)`", ")`"),
            ("ab", "`'ab'`", ")`"),
            (np.array([[0.0], [np.nan]]), "`nan` (1 of 2)", f"[1])`{SQUASH}"),
            (np.array([[-3.0], [2.0]]), "`-3.0` (2 of 2)", f"[0])`{SQUASH}"),
        )
    ),
    *(
        (TMazeEnv, 0, bad, f"an action from 0 to 3, got `{bad!r}` - at `{MAZE}.step(action)`: 0 forward, 1 back")
        for bad in (4, -1, 1.0, "up", None, np.array([1, 2]))
    ),
]


@pytest.mark.parametrize(("make", "good", "bad", "text"), BAD_ACTIONS)
def test_bad_actions_are_refused_and_change_nothing(make: Any, good: Any, bad: Any, text: str) -> None:
    env, clean = started(make()), started(make())
    with pytest.raises(ArgumentError, match=re.escape(f"Expected {text}")):
        env.step(bad)
    np.testing.assert_array_equal(env.step(good)[0], clean.step(good)[0])


@pytest.mark.parametrize(
    ("env", "name", "action", "truncated"),
    [
        (PairsTradingEnv(horizon=2), PAIRS, np.zeros(1, np.float32), [False, True]),
        (TMazeEnv(length=1), MAZE, 1, [False, False, True]),
    ],
)
def test_stepping_needs_a_running_episode(env: Any, name: str, action: Any, truncated: list[bool]) -> None:
    text = f"Expected a running episode, got a step after its end - at `{name}.step`: call `reset` first"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        env.step(action)
    env.reset(seed=0)
    assert [env.step(action)[3] for _ in truncated] == truncated
    with pytest.raises(ArgumentError, match=re.escape(text)):
        env.step(action)


@pytest.mark.parametrize(
    ("make", "good"),
    [(PairsTradingEnv, np.array([0.5])), (lambda: PairsTradingVectorEnv(2), np.full((2, 1), 0.5)), (TMazeEnv, 0)],
)
def test_results_belong_to_the_caller(make: Any, good: Any) -> None:
    env, clean = make(), make()
    obs, _ = env.reset(seed=0)
    clean.reset(seed=0)
    obs[:] = 99.0
    for _ in range(2):
        *arrays, infos = env.step(good)
        *wanted, _ = clean.step(good)
        for mine, other in zip(arrays, wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
        for array in (*arrays, *infos.values()):
            if isinstance(array, np.ndarray):
                array[...] = True
