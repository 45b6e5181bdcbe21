"""What a world model does with `buffer.write`: latents, recurrent states and rewards that it computes anew are stored.

As DreamerV3 does, sequences are drawn, a recurrent model goes through them, and the latents that it comes to are put
on their steps, where the next draw of a sequence that begins later finds them. As R2D2 does, the state at which a
sequence starts is refreshed. And rewards get the value that a reward model has for them by now.

python examples/write_back.py --updates 100
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import relive

ENVS, LENGTH, STARTS, OBS, HIDDEN, LATENT = 4, 16, 4, 3, 8, 6


class Model:
    """A recurrence that stands for a trained one: its states, latents and rewards follow from what it has seen."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights, self.inputs = 0.3 * rng.standard_normal((HIDDEN, HIDDEN)), rng.standard_normal((OBS, HIDDEN))
        self.head = rng.standard_normal((HIDDEN, LATENT))

    def unroll(self, state: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Compute the states after each step of sequences: `[B, H]` and `[B, T, O]` give `[B, T, H]`."""
        states = []
        for t in range(obs.shape[1]):
            state = np.tanh(state @ self.weights + obs[:, t] @ self.inputs)
            states.append(state)
        return np.stack(states, axis=1)

    def latents(self, states: np.ndarray) -> np.ndarray:
        """Compute latents `[B, T, Z]`."""
        return np.tanh(states @ self.head)


def filled(steps: int, rng: np.random.Generator) -> relive.ReplayBuffer:
    """Make a buffer of random walks, whose actors knew no states, latents or rewards."""
    schema = relive.Schema(
        obs=relive.Field((OBS,)),
        action=relive.Field((), "int64"),
        reward=relive.Field(writable=True),
        latent=relive.Field((LATENT,), writable=True, saved=False),
        state=relive.Field((HIDDEN,), every=STARTS, writable=True),
    )
    item = relive.Sequences(LENGTH, starts=STARTS, step_ids=True)
    buffer = relive.ReplayBuffer(schema, ENVS * steps, num_envs=ENVS, item=item, seed=0)
    walk = np.cumsum(0.3 * rng.standard_normal((ENVS, steps + 1, OBS)), axis=1).astype(np.float32)
    no, nothing = np.zeros((ENVS, steps), bool), np.zeros((ENVS, steps))
    buffer.extend(
        obs=walk[:, :-1], action=nothing.astype(int), reward=nothing, next_obs=walk[:, 1:], terminated=no, truncated=no,
        latent=np.zeros((ENVS, steps, LATENT)), state=np.zeros((ENVS, steps, HIDDEN)),
    )  # fmt: skip
    return buffer


def update(buffer: relive.ReplayBuffer, model: Model, batch: relive.Batch) -> float:
    """Write what the model makes of a batch; returns how far the latents moved."""
    states = model.unroll(batch.state, batch.obs)
    latents = model.latents(states)
    moved = float(np.abs(latents - batch.latent)[batch.mask].mean())
    # Padding has -1 in `step_ids`, and is skipped; so are steps that were overwritten since the draw.
    buffer.write(batch.step_ids, latent=latents, reward=latents.sum(axis=-1))
    # The state before the step at which the next sequence begins.
    buffer.write(np.where(batch.mask[:, STARTS], batch.step_ids[:, STARTS], -1), state=states[:, STARTS - 1])
    return moved


def check(buffer: relive.ReplayBuffer, model: Model) -> dict[str, float]:
    """Measure how far the stored values are from one pass over each whole stream."""
    ids, obs = buffer.column("ids"), buffer.column("obs")
    there = int((ids >= 0).all(axis=0).sum())
    states = model.unroll(np.zeros((ENVS, HIDDEN)), obs[:, :there])
    wanted: dict[str, Any] = {"latent": model.latents(states), "reward": model.latents(states).sum(axis=-1)}
    return {name: float(np.abs(buffer.column(name)[:, :there] - each).max()) for name, each in wanted.items()}


def main() -> None:
    """Sweep over random batches until all stored values equal those of one pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100, help="batches that are written back (default 100)")
    parser.add_argument("--steps", type=int, default=300, help="of each environment (default 300)")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    buffer, model = filled(args.steps, rng), Model(rng)
    print("before", check(buffer, model))
    for number in range(args.updates):
        moved = update(buffer, model, buffer.sample(32))
        if number % 20 == 0:
            print(f"update {number}: latents moved by {moved:.6f}")
    after = check(buffer, model)
    print("after", after)
    if max(after.values()) > 1e-3:
        raise SystemExit("the latents are not those of one pass: give it more updates")


if __name__ == "__main__":
    main()
