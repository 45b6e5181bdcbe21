"""Train soft actor-critic with prioritized 3-step replay, save the run, and let it act; a saved run goes on.

python examples/train_sac.py
python examples/train_sac.py --env-id HalfCheetah-v5 --steps 100000 --out runs/cheetah
python examples/train_sac.py --steps 200000 --out runs/cheetah
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium

from relive_lab import Progress, SACConfig, SACTrainer


def show(progress: Progress) -> None:
    """Print a line of progress over the one before."""
    line = f"step {progress.step:,} of {progress.total_steps:,}, evaluation return {progress.eval_return:.1f}"
    print(f"\r{line:<70}", end="", flush=True)


def main() -> None:
    """Train or go on, and play one episode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="Pendulum-v1", help="any environment with bounded continuous actions")
    parser.add_argument("--steps", type=int, default=6_000, help="environment steps (default 6000)")
    parser.add_argument("--uniform", action="store_true", help="draw uniformly instead of by TD error")
    parser.add_argument("--out", type=Path, default=Path("runs/train_sac"), help="folder of the run")
    args = parser.parse_args()

    config = SACConfig(
        env_id=args.env_id,
        total_steps=args.steps,
        start_steps=min(1_000, args.steps // 2),
        use_per=not args.uniform,
        per_beta_anneal_steps=args.steps,
        n_step=3,
        hidden_sizes=(64, 64),
        batch_size=64,
        learning_rate=1e-3,
        tau=0.01,
        eval_every=max(args.steps // 10, 1),
        save_every=10_000,
        torch_threads=1,  # nets as small as these are fastest on one thread
    )
    if (args.out / "learner.safetensors").exists():
        trainer = SACTrainer.load(args.out, total_steps=args.steps)
    else:
        trainer = SACTrainer(config)
    result = trainer.train(progress=show, out=args.out)
    print(f"\n{result.updates:,} updates in {result.seconds:.0f} s: {trainer.buffer!r}")

    env = gymnasium.make(trainer.config.env_id)
    obs, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(trainer.act(obs))
        total, over = total + float(reward), terminated or truncated
    print(f"one episode of the learner: {total:.1f}")


if __name__ == "__main__":
    main()
