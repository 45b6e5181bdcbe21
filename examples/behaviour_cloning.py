"""Arms learn to reach from demonstrations: LeRobot's data set, `Windows`, and a small diffusion policy.

    python examples/behaviour_cloning.py --updates 400

Made arms are recorded as a data set in LeRobot's format, with two cameras. The same policy (two states, the newest
images, a chunk of 16 actions out of noise; its loss leaves out actions after an episode's end) is trained twice, on the
same frames: as `LeRobotDataset` defines `delta_timestamps`, each image decoded when it is needed, and from a buffer.
Then it moves new arms, next to random actions. `--lerobot` reads by the class `LeRobotDataset` itself, if installed.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import numpy as np
import pyarrow.parquet as parquet
import torch
from PIL import Image
from torch import Tensor, nn

import relive
from relive.trajectories import Trajectory, from_lerobot, to_lerobot

Arrays: TypeAlias = dict[str, np.ndarray]
STATES, ACTIONS, SIZE, FPS = (-1, 0), range(16), 32, 10
CAMERAS = ("front", "wrist")
FARTHEST = 0.1  # that a joint moves in a step


class Arms:
    """Some arms of two joints, each with a goal; one camera sees the goal, the other one how far away it is."""

    def __init__(self, number: int, rng: np.random.Generator) -> None:
        self.goals, self.joints = rng.uniform(-1, 1, (2, number, 2))

    def look(self) -> Arrays:
        """Return what the cameras show, and the joints."""
        seen = {}
        for camera, points in zip(CAMERAS, (self.goals, self.goals - self.joints), strict=True):
            away = np.arange(SIZE) - (points[..., None] + 2) / 4 * (SIZE - 1)
            light = np.exp(-(away[:, 0, :, None] ** 2 + away[:, 1, None] ** 2) / 4)
            seen[camera] = np.repeat((255 * light)[..., None], 3, -1).astype("uint8")
        return {**seen, "state": self.joints.astype("float32")}

    def shown(self) -> np.ndarray:
        """Return the actions of the demonstrations."""
        return np.clip(self.goals - self.joints, -FARTHEST, FARTHEST).astype("float32")

    def move(self, actions: np.ndarray) -> None:
        """Move the joints."""
        self.joints = self.joints + np.clip(actions, -FARTHEST, FARTHEST)

    def distances(self) -> np.ndarray:
        """Return how far the arms are from their goals."""
        return np.linalg.norm(self.goals - self.joints, axis=-1)


def record(path: str, episodes: int) -> None:
    """Record arms that reach their goals, an episode each."""
    rng, frames = np.random.default_rng(0), []
    arms, lengths = Arms(episodes, rng), rng.integers(20, 40, episodes)
    for _ in range(40):
        frames.append({**arms.look(), "action": arms.shown()})
        arms.move(frames[-1]["action"])
    made = []
    for arm, length in enumerate(lengths):
        arrays = {name: np.stack([frame[name][arm] for frame in frames[:length]])[:, None] for name in frames[0]}
        done, actions = np.arange(length)[:, None] == length - 1, arrays.pop("action")
        made.append(Trajectory(curr_obs=arrays, actions=actions, dones=done, task="reach"))
    to_lerobot(made, path, fps=FPS)


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
        self.rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
        self.episodes = np.array([row["episode_index"] for row in self.rows])

    def batch(self, numbers: np.ndarray) -> Arrays:
        """Return these frames, offsets clamped to their episodes."""
        numbered = self.episodes[numbers]
        first, end = (np.searchsorted(self.episodes, numbered, side)[:, None] for side in ("left", "right"))
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


class Installed:
    """The same frames by `LeRobotDataset` itself."""

    def __init__(self, path: str) -> None:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset

        times = {"observation.state": [k / FPS for k in STATES], "action": [k / FPS for k in ACTIONS]}
        self.data = LeRobotDataset("made/arms", root=path, delta_timestamps=times)

    def batch(self, numbers: np.ndarray) -> Arrays:
        """Return these frames, collated as a loader does."""
        frames = torch.utils.data.default_collate([self.data[number] for number in numbers.tolist()])
        found = {"pad": frames["action_is_pad"], "action": frames["action"], "state": frames["observation.state"]}
        for camera in CAMERAS:  # floats, channels first
            found[camera] = (frames[f"observation.{camera}"] * 255).round().byte().permute(0, 2, 3, 1)
        return {name: value.numpy() for name, value in found.items()}


class Policy(nn.Module):
    """A denoiser of action chunks, given two states and the newest images.

    Diffusion of Ho et al. (2020), with the cosine schedule of Nichol and Dhariwal (2021): at time t in [0, 1] a chunk
    is `cos(t pi / 2) * chunk + sin(t pi / 2) * noise`. Images become points, where features lie (a spatial softmax),
    as in Diffusion Policy (Chi et al., 2023).
    """

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(6, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 3))
        layers = [nn.Linear(2 * 16 + 4 + 2 + 32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)]
        self.head = nn.Sequential(*layers)

    def see(self, batch: Arrays) -> Tensor:
        """Return what is known of the arms."""
        images = torch.as_tensor(np.concatenate([batch[camera] for camera in CAMERAS], -1))
        features = self.eyes(images.permute(0, 3, 1, 2).float() / 255)
        light, place = features.flatten(2).softmax(-1).view_as(features), torch.linspace(-1, 1, features.shape[-1])
        points = [(light.sum(axis) * place).sum(-1) for axis in (2, 3)]
        return torch.cat([*points, torch.as_tensor(batch["state"]).flatten(1)], -1)

    def chunk(self, seen: Tensor, noisy: Tensor, turn: Tensor) -> Tensor:
        """Return a chunk without its noise."""
        return self.head(torch.cat([seen, noisy.flatten(1), turn.cos(), turn.sin()], -1)).view(-1, len(ACTIONS), 2)

    def loss(self, batch: Arrays) -> Tensor:
        """Return the mean error of the actions that exist."""
        chunk = torch.as_tensor(batch["action"]) / FARTHEST
        noise, turn = torch.randn_like(chunk), torch.rand(len(chunk), 1) * torch.pi / 2
        noisy = turn.cos()[..., None] * chunk + turn.sin()[..., None] * noise
        wrong = (self.chunk(self.see(batch), noisy, turn) - chunk).square().mean(-1)
        there = ~torch.as_tensor(batch["pad"])
        return (wrong * there).sum() / there.sum()

    @torch.no_grad()
    def act(self, batch: Arrays, steps: int = 10) -> np.ndarray:
        """Turn noise into chunks in a few steps, as DDIM does (Song et al., 2021)."""
        seen, noisy = self.see(batch), torch.randn(len(batch["state"]), len(ACTIONS), 2)
        for turn, after in torch.linspace(torch.pi / 2, 0, steps + 1).unfold(0, 2, 1):
            chunk = self.chunk(seen, noisy, turn.expand(len(noisy), 1))
            noisy = after.cos() * chunk + after.sin() * (noisy - turn.cos() * chunk) / turn.sin()
        return noisy.numpy() * FARTHEST


def train(policy: Policy, batches: Callable[[int], Arrays], updates: int) -> tuple[list[float], float, float]:
    """Train a policy; returns its losses, and the seconds of all updates and of the batches alone."""
    optimizer, losses, fetching, begin = torch.optim.Adam(policy.parameters(), 2e-3), list[float](), 0.0, perf_counter()
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


def reach(choose: Callable[[Arrays], np.ndarray], arms: int = 100, again: int = 8) -> tuple[float, float]:
    """Move new arms by chunks, of which the first actions count; returns the share that arrives, and mean distances."""
    tried = Arms(arms, np.random.default_rng(7))
    seen = [tried.look()] * 2
    for _ in range(40 // again):
        states = np.stack([each["state"] for each in seen[-2:]], 1)
        for actions in np.swapaxes(choose({**seen[-1], "state": states}), 0, 1)[:again]:
            tried.move(actions)
            seen.append(tried.look())
    return float((tried.distances() < FARTHEST).mean()), float(tried.distances().mean())


def main(updates: int, episodes: int, lerobot: bool, batch_size: int = 64) -> None:
    """Train both ways, print what they cost, and try what was learned."""
    with tempfile.TemporaryDirectory() as home:
        path = f"{home}/arms"
        record(path, episodes)
        begin = perf_counter()
        buffer = read(path)
        took, ids, frames = perf_counter() - begin, np.sort(buffer.ids()), (Installed if lerobot else Defined)(path)
        drawn = np.random.default_rng(1).integers(len(ids), size=(updates, batch_size))  # frame k is the k-th id

        def from_buffer(number: int) -> Arrays:
            batch = buffer.read(ids[drawn[number]])
            return {**{name: batch.obs[name] for name in batch.obs}, "action": batch.action, "pad": batch.pad.action}

        results = []
        for batches in (lambda number: frames.batch(drawn[number]), from_buffer):
            torch.manual_seed(0)
            policy = Policy()
            results.append(train(policy, batches, updates))
    (theirs, whole, fetching), (ours, less, fetched) = results
    if not np.allclose(theirs, ours, rtol=1e-4):
        raise SystemExit("the losses differ")
    rate = updates * batch_size
    print(f"loss {ours[0]:.4f} -> {np.mean(ours[-20:]):.4f}, the same both ways")
    print(f"{len(ids)} frames read in {took:.2f} s")
    print(f"decoded each time: {whole:.2f} s, {rate / fetching:,.0f} samples a second")
    print(f"relive: {less:.2f} s, {rate / fetched:,.0f} samples a second")
    rng = np.random.default_rng(3)
    for name, choose in (
        ("the policy", policy.act),
        ("random actions", lambda seen: rng.uniform(-FARTHEST, FARTHEST, (len(seen["state"]), len(ACTIONS), 2))),
    ):
        arrived, distance = reach(choose)
        print(f"{name}: {arrived:.0%} of new arms reach their goals; mean distance {distance:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--lerobot", action="store_true", help="read by LeRobot's own class")
    given = parser.parse_args()
    main(given.updates, given.episodes, given.lerobot)
