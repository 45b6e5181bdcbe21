"""Trade a pair of stocks by a rule of thumb, and save a picture of one episode.

python examples/pairs_trading.py episode.png
python examples/pairs_trading.py episode.png --data real --split test --threshold 6
"""

from __future__ import annotations

import argparse

import gymnasium
import matplotlib.image

import relive_lab.envs
from relive_lab.envs import ThresholdPolicy


def main() -> None:
    """Evaluate the rule on many episodes, then draw the first of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", help="where to save the picture, for example episode.png")
    parser.add_argument("--data", choices=["synthetic", "real"], default="synthetic")
    parser.add_argument("--mode", choices=["break", "dislocation"], help="rare events of the synthetic pair")
    parser.add_argument("--split", choices=["train", "test"], help="part of the real prices")
    parser.add_argument("--cost", type=float, help="per unit of position changed")
    parser.add_argument("--threshold", type=float, default=2.0, help="spread at which to trade (default 2)")
    parser.add_argument("--episodes", type=int, default=1000, help="how many to average over (default 1000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    chosen = {"data": args.data, "mode": args.mode, "split": args.split, "cost": args.cost}
    settings = {name: value for name, value in chosen.items() if value is not None}
    policy = ThresholdPolicy(args.threshold)

    returns = relive_lab.envs.evaluate(policy, episodes=args.episodes, seed=args.seed, **settings)
    error = returns.std() / len(returns) ** 0.5
    print(f"mean return of {args.episodes} episodes: {returns.mean():.3f} (standard error {error:.3f})")

    env = gymnasium.make("relive/PairsTrading-v0", render_mode="rgb_array", **settings)
    obs, info = env.reset(seed=args.seed)
    truncated = False
    while not truncated:
        obs, _, _, truncated, info = env.step(policy(obs))
    matplotlib.image.imsave(args.picture, env.render())
    env.close()
    print(f"{args.picture}: profit {info['profit']:+.2f}, {info['cost']:.2f} of it paid for trading")


if __name__ == "__main__":
    main()
