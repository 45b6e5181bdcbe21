"""The steps every question feeds its peers: by default the transition of a small robot-control task.

166 bytes a transition, like Gymnasium's HalfCheetah: observation 17 x float32 (and its successor), action 6 x float32,
reward, terminated, truncated. Values come as an environment returns them: NumPy rows, a Python float, Python bools.
Sequences have larger observations; `frame_steps` are those of an Atari game, `rollouts` a robot's, with a camera.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OBS_SIZE, ACTION_SIZE = 17, 6
SEQUENCE_OBS_SIZE = 64
SMALL = (4, 1)  # numbers of an observation and an action, as in CartPole
EPISODE = 1000  # steps; ends alternate between terminated and truncated
POOL = 1 << 16  # distinct steps; a longer stream repeats them
FRAME, STACK = (84, 84), 4
ALPHA, BETA, GAMMA = 0.6, 0.4, 0.99

Array = NDArray[Any]


class Step(NamedTuple):
    """One step, or, where every value has a leading axis, one step of several lanes."""

    obs: Array
    action: Any
    reward: Any
    next_obs: Array
    terminated: Any
    truncated: Any


@cache
def stream(length: int = POOL, obs_size: int = OBS_SIZE, action_size: int = ACTION_SIZE) -> Step:
    """Return a stream of `length` steps that closes on itself.

    `next_obs` of a step is the very memory of the following `obs`, as in an environment's loop, and the last step leads
    back to the first: repeated for ever, the stream has no break in it.
    """
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((length + 1, obs_size), dtype=np.float32)
    obs[length] = obs[0]
    action = rng.uniform(-1, 1, (length, action_size)).astype(np.float32)
    reward = rng.standard_normal(length, dtype=np.float32)
    index = np.arange(length)
    terminated = index % (2 * EPISODE) == EPISODE - 1
    truncated = index % (2 * EPISODE) == 2 * EPISODE - 1
    return Step(obs[:-1], action, reward, obs[1:], terminated, truncated)


def single_steps(count: int, obs_size: int = OBS_SIZE, action_size: int = ACTION_SIZE) -> list[Step]:
    """Return the first `count` steps of the stream one by one, in an environment's own types."""
    s = stream(max(count, 2), obs_size, action_size)
    flags = zip(s.reward.tolist(), s.terminated.tolist(), s.truncated.tolist(), strict=True)
    return [Step(s.obs[i], s.action[i], r, s.next_obs[i], t, u) for i, (r, t, u) in enumerate(flags)][:count]


def endless_steps(several: int) -> Iterator[Step]:
    """Yield steps for ever: single ones, or `several` of the stream at a time."""
    if several == 1:
        return cycle(single_steps(2 * EPISODE))
    whole = stream()
    return cycle([Step(*(column[k : k + several] for column in whole)) for k in range(0, 64 * several, several)])


def lane_steps(lanes: int, count: int, seed: int = 1, obs_size: int = OBS_SIZE) -> list[Step]:
    """Return `count` steps of `lanes` environments side by side; the lanes' episodes end at different times."""
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((count, lanes, obs_size), dtype=np.float32)
    action = rng.uniform(-1, 1, (count, lanes, ACTION_SIZE)).astype(np.float32)
    reward = rng.standard_normal((count, lanes), dtype=np.float32)
    ends = rng.random((count, lanes)) < 1 / EPISODE
    terminated = ends & (rng.random((count, lanes)) < 0.5)
    truncated = ends & ~terminated
    return [Step(obs[t], action[t], reward[t], obs[(t + 1) % count], terminated[t], truncated[t]) for t in range(count)]


def blocks(total: int, obs_size: int = OBS_SIZE, action_size: int = ACTION_SIZE) -> Iterator[Step]:
    """Yield `total` steps as consecutive blocks of the stream."""
    whole = stream(POOL, obs_size, action_size)
    while total > 0:
        count = min(POOL, total)
        yield Step(*(column[:count] for column in whole))
        total -= count


@cache
def frame_steps() -> list[Step]:
    """Return two episodes of stacks `[4, 84, 84]`, uint8, as a frame-stack wrapper gives them: one ends by itself.

    All stacks are views of one stream of frames, so that `next_obs` is the memory of the following `obs`, and three
    frames of it are known already. At a reset the first frame stands for those before it.
    """
    rng = np.random.default_rng(3)
    steps = []
    for terminates in (True, False):
        frames = rng.integers(0, 256, (EPISODE + STACK, *FRAME), dtype=np.uint8)
        frames[1:STACK] = frames[0]
        for t in range(EPISODE):
            last = t == EPISODE - 1
            obs, next_obs = frames[t : t + STACK], frames[t + 1 : t + 1 + STACK]
            steps.append(Step(obs, t % 6, float(t % 3), next_obs, last and terminates, last and not terminates))
    return steps


def td_errors(n: int, count: int = 64) -> list[Array]:
    """Return `count` arrays of `n` positive TD errors, float32."""
    rng = np.random.default_rng(2)
    return [np.abs(rng.standard_normal(n)).astype(np.float32) + np.float32(1e-3) for _ in range(count)]


def rollouts(count: int, length: int, width: int, side: int, state: int) -> list[dict[str, Any]]:
    """Return rollouts of `length` steps in `width` environments: arrays `[T, B, ...]`, with the names RLinf uses.

    Observations are an image `[3, side, side]` of uint8 and `state` float32. `next_obs` is `curr_obs` one step later,
    in memory of its own, as where both were stacked from a list of steps.
    """
    rng = np.random.default_rng(4)
    found = []
    for _ in range(count):
        image = rng.integers(0, 256, (length + 1, width, 3, side, side), dtype=np.uint8)
        states = rng.standard_normal((length + 1, width, state), dtype=np.float32)
        flags = np.zeros((length, width, 1), bool)
        flags[-1] = True
        found.append(
            {
                "curr_obs": {"image": image[:-1].copy(), "state": states[:-1].copy()},
                "next_obs": {"image": image[1:].copy(), "state": states[1:].copy()},
                "actions": rng.uniform(-1, 1, (length, width, 7)).astype(np.float32),
                "rewards": rng.standard_normal((length, width, 1), dtype=np.float32),
                "dones": flags,
                "terminations": np.zeros_like(flags),
                "truncations": flags.copy(),
            }
        )
    return found
