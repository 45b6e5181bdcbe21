"""The environment `relive/TMaze-v0`: remember one cue to the end of a corridor."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from relive.errors import ArgumentError, message
from relive_lab import checks

NAME = "TMaze-v0"
FORWARD, BACK, UP, DOWN = range(4)
STILL, GOAL, WRONG = -0.05, 1.0, -0.1
TIME_LIMIT = 3  # corridor lengths


class TMazeEnv(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """A corridor of `length` steps to a junction; the first observation shows a cue that says where to turn there.

    Nothing at the junction repeats the cue, so an agent without memory is right half of the time at best. The task is
    that of Bakker (2002), made small.

    Observation, float32 `[4]`:

    | | name | value |
    |---|---|---|
    | 0 | cue | +1 (turn up) or -1 (turn down) in an episode's first observation, 0 afterwards |
    | 1 | corridor | 1 before the junction, 0 at it |
    | 2 | junction | 1 at the junction, 0 before |
    | 3 | constant | 1 |

    Actions: 0 forward, 1 back, 2 up, 3 down. In the corridor forward leads one step on for a reward of 0. At the
    junction up or down ends the episode: +1 if it is the cue's direction, -0.1 if not. Everything else changes nothing
    and costs 0.05. After `3 * length` steps the episode is truncated. `info` is empty, except for `is_success` in the
    last step: whether the turn was right.

    Args:
        length: Steps from the start to the junction.
        render_mode: `None` or `"ansi"` (a drawing as text).

    Raises:
        ArgumentError: `length` is not a positive integer, or the render mode is unknown.

    >>> import gymnasium, relive_lab.envs
    >>> env = gymnasium.make("relive/TMaze-v0", length=3)
    >>> obs, _ = env.reset(seed=1)
    >>> obs.tolist()
    [-1.0, 1.0, 0.0, 1.0]
    >>> for action in (0, 0, 0, 3):  # forward to the junction, and down, as the cue said
    ...     obs, reward, terminated, truncated, info = env.step(action)
    >>> reward, terminated, info
    (1.0, True, {'is_success': True})
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's API)

    def __init__(self, length: int = 10, *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "ansi"):
            raise ArgumentError(message("`None` or `ansi`", f"`{render_mode!r}`", f"{NAME}(render_mode)"))
        self.length, self.render_mode = checks.integer(length, f"{NAME}(length)", 1), render_mode
        low, high = np.array([-1, 0, 0, 0], np.float32), np.ones(4, np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._cue = self._place = 0
        # `step` refuses before the first reset as it does after an episode's end.
        self._steps, self._over = 0, True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Draw a cue and go back to the start; no `options` are known."""
        super().reset(seed=seed)
        self._cue = 1 if self.np_random.random() < 0.5 else -1
        self._place, self._steps, self._over = 0, 0, False
        return self._observe(), {}

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Walk or turn: 0 forward, 1 back, 2 up, 3 down."""
        try:
            move = operator.index(action)
        except TypeError:
            move = -1
        if not FORWARD <= move <= DOWN:
            remedy = "0 forward, 1 back, 2 up, 3 down"
            raise ArgumentError(message("an action from 0 to 3", f"`{action!r}`", f"{NAME}.step(action)", remedy))
        if self._over:
            expected, got = "a running episode", "a step after its end"
            raise ArgumentError(message(expected, got, f"{NAME}.step", "call `reset` first"))
        self._steps += 1
        reward, terminated, success = STILL, False, False
        if self._place < self.length:
            if move == FORWARD:
                self._place, reward = self._place + 1, 0.0
        elif move in (UP, DOWN):
            terminated, success = True, (move == UP) == (self._cue > 0)
            reward = GOAL if success else WRONG
        truncated = not terminated and self._steps >= TIME_LIMIT * self.length
        self._over = terminated or truncated
        return self._observe(), reward, terminated, truncated, {"is_success": success} if self._over else {}

    def _observe(self) -> npt.NDArray[np.float32]:
        junction = self._place == self.length
        cue = 0 if self._steps else self._cue
        return np.array([cue, not junction, junction, 1.0], np.float32)

    def render(self) -> str | None:
        """Draw the maze as text, three lines: the agent `@` in the middle one, and the cue while it shows.

        >>> env = TMazeEnv(length=3, render_mode="ansi")
        >>> _ = env.reset(seed=1), env.step(0)
        >>> print(env.render().splitlines()[1])
        . @ . +
        """
        if self.render_mode is None:
            return None
        if not self._cue:
            raise ArgumentError(message("an episode", "a picture before one", f"{NAME}.render", "call `reset` first"))
        floor = ["."] * self.length + ["+"]
        floor[self._place] = "@"
        margin = " " * (2 * self.length)
        cue = "" if self._steps else " cue: up" if self._cue > 0 else " cue: down"
        return f"{margin}U\n{' '.join(floor)}{cue}\n{margin}D"
