"""Loading recorded cases, and feeding their streams to a buffer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import relive

DATA = Path(__file__).parent / "data"


def cases(family: str) -> list[str]:
    """Names of the recorded cases of a family."""
    return sorted(path.stem for path in DATA.glob(f"{family}_*.npz"))


def load(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Parameters and arrays of a case."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    return json.loads(str(arrays.pop("params"))), arrays


class Uniforms:
    """A generator that hands out a recorded stream, one `random(n)` at a time."""

    def __init__(self, stream: np.ndarray) -> None:
        self.stream = np.asarray(stream, np.float64)

    def random(self, n: int) -> np.ndarray:
        assert n <= len(self.stream), "more uniforms were asked for than one draw needs"
        taken, self.stream = self.stream[:n], self.stream[n:]
        return taken


class Stream:
    """A recorded stream of `[S, B]` steps, appended in the recorded chunks to a ring of `ring_T` rows a lane.

    No `next_obs` is given, so that nothing takes a row but steps, and slots are the recorded ones.
    """

    def __init__(self, params: dict[str, Any], arrays: dict[str, np.ndarray], **choices: Any) -> None:
        self.rows, self.lanes, self.n = params["ring_T"], params["B"], params["n_step_return"]
        self.params, self.arrays = params, arrays
        self.written = 0
        self.buffer = relive.ReplayBuffer(
            relive.Schema(obs=relive.Field((3,), "float32"), action=relive.Field((), "int64")),
            capacity=self.rows * self.lanes,
            num_envs=self.lanes,
            item=relive.Transitions(n_step=self.n, gamma=params["discount"]),
            **choices,
        )

    def append(self, length: int, **extra: Any) -> np.ndarray:
        """Append the next `length` steps; returns their ids `[T, B]`."""
        now = slice(self.written, self.written + length)
        done = self.arrays["in_done"][now]
        timeout = self.arrays["in_timeout"][now] if "in_timeout" in self.arrays else np.zeros_like(done)
        ids = self.buffer.extend(
            obs=self.arrays["in_observation"][now],
            action=self.arrays["in_action"][now],
            reward=self.arrays["in_reward"][now],
            terminated=done & ~timeout,
            truncated=done & timeout,
            time_major=True,
            **extra,
        )
        self.written += length
        return ids

    def id_at(self, slots: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Ids of the steps that stand at these ring slots now."""
        newest = (self.written - 1 - np.asarray(slots)) // self.rows * self.rows + np.asarray(slots)
        return newest * self.lanes + lanes
