"""An arm learns to reach from demonstrations: LeRobot's data set, `Windows`, and a small policy of action chunks.

    python examples/behaviour_cloning.py --updates 400

A made arm is recorded as a data set in LeRobot's format, with two cameras. The same policy (two frames of state, the
newest images, a chunk of 16 actions; its loss is masked where the episode has no action) is trained twice, on the same
frames: read as `LeRobotDataset` defines `delta_timestamps`, each image decoded when it is needed, and from a buffer.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import torch
from PIL import Image
from torch import nn

import relive
from relive.trajectories import Trajectory, from_lerobot, to_lerobot

STATES, ACTIONS, SIZE = (-1, 0), range(16), 32
CAMERAS = ("front", "wrist")


def record(path: str, episodes: int) -> None:
    """Record an arm of two joints that reaches for a point, seen by two cameras."""
    rng, made = np.random.default_rng(0), []
    for _ in range(episodes):
        goal, joints, steps = rng.uniform(-1, 1, 2), rng.uniform(-1, 1, 2), int(rng.integers(20, 40))
        rows: dict[str, list[Any]] = {name: [] for name in (*CAMERAS, "state", "action")}
        for _ in range(steps):
            action = np.clip(goal - joints, -0.1, 0.1)
            for camera, point in zip(CAMERAS, (goal, goal - joints), strict=True):
                image = np.zeros((SIZE, SIZE, 3), "uint8")
                x, y = ((point + 2) / 4 * (SIZE - 1)).astype(int)
                image[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3] = 255
                rows[camera].append(image)
            rows["state"].append(joints.astype("float32"))
            rows["action"].append(action.astype("float32"))
            joints = joints + action
        arrays = {name: np.stack(values)[:, None] for name, values in rows.items()}
        done = np.arange(steps)[:, None] == steps - 1
        actions = arrays.pop("action")
        made.append(Trajectory(curr_obs=arrays, actions=actions, dones=done, task="reach"))
    to_lerobot(made, path, fps=10)


def read(path: str) -> relive.ReplayBuffer:
    """Read a data set into a buffer: every frame is a step."""
    image = relive.Field((SIZE, SIZE, 3), "uint8")
    schema = relive.Schema(obs={"front": image, "wrist": image, "state": relive.Field(2)}, action=relive.Field(2))
    item = relive.Windows(obs={"state": STATES}, action=ACTIONS)
    buffer = relive.ReplayBuffer(schema, 100_000, item=item, seed=0)
    for episode in from_lerobot(path):
        last = episode["dones"].reshape(-1).astype(bool)
        obs = {name: values[:, 0] for name, values in episode["curr_obs"].items()}
        zero = np.zeros(len(last), "float32")
        buffer.extend(obs=obs, action=episode["actions"][:, 0], reward=zero, terminated=last, truncated=last & False)
    return buffer


class Defined:
    """The frames of a data set as `LeRobotDataset` defines them: rows of a table, images decoded when asked for."""

    def __init__(self, path: str) -> None:
        files = sorted(Path(path, "data").rglob("*.parquet"))
        rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
        self.rows, self.episodes = rows, np.array([row["episode_index"] for row in rows])

    def batch(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return these frames, offsets clamped to their episodes."""
        which = self.episodes[numbers]
        first, end = (np.searchsorted(self.episodes, which, side)[:, None] for side in ("left", "right"))
        states, actions = (numbers[:, None] + np.array(offsets) for offsets in (STATES, ACTIONS))
        found = {
            "state": self._of("observation.state", np.clip(states, first, end - 1)),
            "action": self._of("action", np.clip(actions, first, end - 1)),
            "pad": (actions < first) | (actions >= end),
        }
        for camera in CAMERAS:
            cells = [self.rows[number][f"observation.{camera}"]["bytes"] for number in numbers.tolist()]
            found[camera] = np.stack([np.asarray(Image.open(io.BytesIO(cell))) for cell in cells])
        return found

    def _of(self, name: str, numbers: np.ndarray) -> np.ndarray:
        return np.array([[self.rows[number][name] for number in row] for row in numbers.tolist()], "float32")


class Policy(nn.Module):
    """A chunk of actions from two states and the newest images."""

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(6, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(8 * 9 + 4, 64), nn.ReLU(), nn.Linear(64, 2 * len(ACTIONS)))

    def loss(self, batch: dict[str, np.ndarray]) -> torch.Tensor:
        """Return the mean error of the actions that exist."""
        images = torch.as_tensor(np.concatenate([batch[camera] for camera in CAMERAS], -1))
        seen = self.eyes(images.permute(0, 3, 1, 2).float() / 255)
        chunk = self.head(torch.cat([seen, torch.as_tensor(batch["state"]).flatten(1)], -1))
        wrong = (chunk.view(-1, len(ACTIONS), 2) - torch.as_tensor(batch["action"])).abs().mean(-1)
        there = ~torch.as_tensor(batch["pad"])
        return (wrong * there).sum() / there.sum()


def train(batches: Any, updates: int) -> tuple[list[float], float, float]:
    """Train a policy; returns its losses, and the seconds of all updates and of the batches alone."""
    torch.manual_seed(0)
    policy, losses, fetching, begin = Policy(), [], 0.0, perf_counter()
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    for number in range(updates):
        before = perf_counter()
        batch = batches(number)
        fetching += perf_counter() - before
        loss = policy.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, perf_counter() - begin, fetching


def main(updates: int, episodes: int, batch_size: int = 64) -> None:
    """Train both ways, and print what they cost."""
    with tempfile.TemporaryDirectory() as home:
        path = f"{home}/arm"
        record(path, episodes)
        begin = perf_counter()
        buffer = read(path)
        took, frames, ids = perf_counter() - begin, Defined(path), buffer.ids()
        drawn = np.random.default_rng(1).integers(len(ids), size=(updates, batch_size))  # frame k is the k-th id

        def from_buffer(number: int) -> dict[str, np.ndarray]:
            batch = buffer.read(np.sort(ids)[drawn[number]])
            return {**{name: batch.obs[name] for name in batch.obs}, "action": batch.action, "pad": batch.pad.action}

        results = [train(batches, updates) for batches in (lambda number: frames.batch(drawn[number]), from_buffer)]
    (theirs, whole, fetching), (ours, less, fetched) = results
    if not np.allclose(theirs, ours, rtol=1e-5):
        raise SystemExit("the losses differ")
    rate = updates * batch_size
    print(f"loss {ours[0]:.4f} -> {np.mean(ours[-20:]):.4f}, the same both ways")
    print(f"{len(ids)} frames read in {took:.2f} s")
    print(f"decoded each time: {whole:.2f} s, {rate / fetching:,.0f} samples a second")
    print(f"relive: {less:.2f} s, {rate / fetched:,.0f} samples a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--episodes", type=int, default=40)
    given = parser.parse_args()
    main(given.updates, given.episodes)
