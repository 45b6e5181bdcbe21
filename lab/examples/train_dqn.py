"""Train deep Q-learning with stacked frames, each stored once, on a task that a single frame cannot solve.

python examples/train_dqn.py
python examples/train_dqn.py --atari ALE/Pong-v5 --steps 1000000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from relive_lab import DQNConfig, DQNTrainer, Progress

SIDE, FALL = 12, 10


class Falling(gymnasium.Env[Any, Any]):
    """A ball falls aslant over an image of 12 x 12 and bounces off the sides; move the paddle below to catch it."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Drop a ball from anywhere, to either side."""
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(1, SIDE - 1)), SIDE // 2
        self.slope = int(self.np_random.choice((-1, 1)))
        return self._image(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle by -1, 0 or 1; the reward is 1 for a catch."""
        self.paddle = min(max(self.paddle + int(action) - 1, 0), SIDE - 1)
        if not 0 <= self.column + self.slope < SIDE:
            self.slope = -self.slope
        self.row, self.column = self.row + 1, self.column + self.slope
        over = self.row == FALL
        return self._image(), float(over and self.column == self.paddle), over, False, {}

    def _image(self) -> Any:
        image = np.zeros((SIDE, SIDE), np.uint8)
        image[self.row, self.column] = 255
        image[-1, self.paddle] = 128
        return image


def show(progress: Progress) -> None:
    """Print a line of progress over the one before."""
    line = f"step {progress.step:,} of {progress.total_steps:,}, evaluation return {progress.eval_return:.2f}"
    print(f"\r{line}, {progress.resident / 1e6:.0f} MB".ljust(78), end="", flush=True)


def main() -> None:
    """Train, and say what the buffer took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atari", metavar="ID", help="train on this game instead, such as ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=10_000, help="environment steps (default 10000)")
    parser.add_argument("--use-per", action="store_true", help="draw by TD error instead of uniformly")
    args = parser.parse_args()

    common: dict[str, Any] = {"total_steps": args.steps, "use_per": args.use_per}
    if args.atari:
        trainer = DQNTrainer(DQNConfig.atari(args.atari, **common))
    else:
        config = DQNConfig(
            **common,
            frame_stack=2,  # the buffer stores single frames, and puts them together when it draws
            start_steps=min(500, args.steps // 2),
            epsilon_steps=max(args.steps // 2, 1),
            eval_every=max(args.steps // 10, 1),
            eval_episodes=50,
            torch_threads=1,  # nets as small as this are fastest on one thread
        )
        trainer = DQNTrainer(config, make_env=Falling)
    result = trainer.train(progress=show)
    print(f"\n{result.updates:,} updates in {result.seconds:.0f} s: {trainer.buffer!r}")


if __name__ == "__main__":
    main()
