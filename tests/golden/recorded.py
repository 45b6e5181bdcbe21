"""Loading recorded cases, and feeding their streams to a buffer."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import relive

DATA = Path(__file__).parent / "data"


def cases(family: str) -> list[str]:
    """List the names of the recorded cases of a family."""
    return sorted(path.stem for path in DATA.glob(f"{family}_*.npz"))


def load(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Load parameters and arrays of a case."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    return json.loads(str(arrays.pop("params"))), arrays


def unpacked(packed: Path, path: Path) -> Path:
    """Write a packed mapped file to `path`, for this user alone."""
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    path.chmod(0o600)
    return path


def copied(saves: Path, path: Path) -> Path:
    """Copy a directory of saves, without the mapped file that was packed next to it."""
    return Path(shutil.copytree(saves, path, ignore=shutil.ignore_patterns("*.gz")))


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

    No `next_obs` is given, so that nothing takes a row but steps, and slots are the recorded ones. What the case needs
    says which buffer it is: frames are stacked, a recurrent state is a field kept at every `rnn_state_interval`-th
    step, and `batch_T` makes sequences of it that run on across ends.
    """

    def __init__(self, params: dict[str, Any], arrays: dict[str, np.ndarray], **choices: Any) -> None:
        self.rows, self.lanes, self.n = params["ring_T"], params["B"], params["n_step_return"]
        self.params, self.arrays = params, arrays
        self.written = 0
        self.frames, self.interval = params.get("n_frames") or 1, params.get("rnn_state_interval", 0)
        windows = {"n_step": self.n, "gamma": params["discount"]}
        obs, self.obs = relive.Field((3,), "float32"), arrays.get("in_observation")
        if "in_frame" in arrays:
            obs = relive.Field(arrays["in_frame"].shape[2:], "uint8", stack=self.frames)
            self.obs = stacked_frames(arrays["in_frame"], arrays["in_done"], self.frames)
        state = {"state": relive.Field((2,), every=self.interval)} if self.interval else {}
        item: Any = relive.Transitions(**windows)
        if "batch_T" in params:
            starts = max(1, self.interval)
            item = relive.Sequences(length=params["batch_T"], starts=starts, across_episodes=True, **windows)
        self.buffer = relive.ReplayBuffer(
            relive.Schema(obs=obs, action=relive.Field((), "int64"), **state),
            capacity=self.rows * self.lanes,
            num_envs=self.lanes,
            item=item,
            boundaries=0,
            **choices,
        )

    def append(self, length: int, **extra: Any) -> np.ndarray:
        """Append the next `length` steps; returns their ids `[T, B]`."""
        now = slice(self.written, self.written + length)
        done = self.arrays["in_done"][now]
        timeout = self.arrays["in_timeout"][now] if "in_timeout" in self.arrays else np.zeros_like(done)
        if self.interval:
            extra["state"] = self.arrays["in_prev_rnn_state"][now]
        ids = self.buffer.extend(
            obs=self.obs[now],
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
        """Return the ids of the steps in these ring slots now."""
        newest = (self.written - 1 - np.asarray(slots)) // self.rows * self.rows + np.asarray(slots)
        return newest * self.lanes + lanes

    def reads(self, key: int) -> bool:
        """Return True if the step with this id can be drawn."""
        try:
            self.buffer.read([int(key)])
        except relive.errors.StaleId:
            return False
        return True


def stacked_frames(frame: np.ndarray, done: np.ndarray, k: int) -> np.ndarray:
    """Stack one frame a step, `[S, B, k, ...]`: an end blanks earlier frames, and so does the stream's start."""
    stacks = np.zeros((*frame.shape[:2], k, *frame.shape[2:]), frame.dtype)
    for t in range(len(frame)):
        alive = np.ones(frame.shape[1], bool)
        for back in range(min(k, t + 1)):
            alive &= ~done[t - back] if back else True
            stacks[t, alive, k - 1 - back] = frame[t - back, alive]
    return stacks


def documented_stream(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Make the input stream of a case that does not store it, by the recipe that all cases share."""
    rng = np.random.default_rng(params["seed"])
    shape = (sum(params["chunks"]), params["B"])
    arrays = {"in_observation": rng.standard_normal((*shape, 3)).astype(np.float32)}
    arrays["in_action"] = rng.integers(0, 5, shape)
    arrays["in_reward"] = rng.standard_normal(shape).astype(np.float32)
    arrays["in_done"] = rng.random(shape) < params["p_done"]
    rng.random(shape)  # time limits, which these cases have not
    arrays["in_prev_rnn_state"] = rng.standard_normal((*shape, 2)).astype(np.float32)
    return arrays
