"""A buffer's statistics in TensorBoard, or in a CSV file: python log_to_tensorboard.py [STEPS]."""

import csv
import sys
from pathlib import Path

import numpy as np

import relive

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
LOGS = Path("logs")


class Table:
    """A CSV file with the calls of TensorBoard's writer that are made here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.file = (folder / "scalars.csv").open("w", newline="")
        self.rows = csv.writer(self.file)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.rows.writerow([step, name, value])

    def close(self) -> None:
        self.file.close()


try:
    from torch.utils.tensorboard import SummaryWriter as Log
except ImportError:
    Log = Table

schema = relive.Schema(obs=relive.Field(3), action=relive.Field())
buffer = relive.ReplayBuffer(
    schema, 2_000, sampler=relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=1_000)), seed=0
)
rng, log = np.random.default_rng(0), Log(LOGS)
obs = np.zeros(3)
for step in range(1, STEPS + 1):
    after = obs + rng.standard_normal(3)
    ended = step % 100 == 0
    buffer.add(obs=obs, action=0.0, reward=after.sum(), next_obs=after, terminated=False, truncated=ended)
    obs = np.zeros(3) if ended else after
    if step % 4 == 0:
        batch = buffer.sample(64)
        buffer.update_priorities(batch.ids, batch.reward - batch.obs.sum(axis=1))
    if step % 500 == 0:
        stats = buffer.stats()
        for name in ("size", "replay_ratio", "cuts", "beta", "effective_sample_size", "stale_updates"):
            log.add_scalar(f"replay/{name}", float(getattr(stats, name)), step)
        for share, value in zip((0, 25, 50, 75, 100), stats.priority_quantiles, strict=True):
            log.add_scalar(f"replay/priority_{share}", value, step)
        log.add_scalar("replay/draw_age", stats.draw_age[0], step)
log.close()
print(f"{sum(1 for _ in LOGS.iterdir())} file in {LOGS}/")
