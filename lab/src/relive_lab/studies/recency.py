"""`relive-lab compare recency`: newer items more often, where few items are drawn per step, and where many are.

`python -m relive_lab.studies.recency FOLDER` makes one table of the folders of several comparisons.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from relive_lab import SACConfig
from relive_lab.studies.arms import NOISY, Arm
from relive_lab.studies.conduct import at_least
from relive_lab.studies.final_observations import LIMITS, THRESHOLDS
from relive_lab.studies.final_observations import train as train_td3
from relive_lab.studies.pairs import EPISODE, HELD_OUT_SEED, PairsLearner, pairs_config, pendulum_config
from relive_lab.studies.study import DEFAULT_RUNS, Runs, Study, evaluations, train
from relive_lab.studies.verdict import FEWEST

if TYPE_CHECKING:
    from relive_lab.td3 import TD3Config

SHARES = (0.4, 0.25, 0.1)
ARMS = {
    "uniform": Arm("uniform", "uniform replay"),
    **{f"recent {s:g}": Arm(f"recent {s:g}", f"a mean age of {s:g}", {"recent_share": s}) for s in SHARES},
    "prioritized": Arm("prioritized", "prioritization by TD error", {"use_per": True}, NOISY),
    "blend": Arm("blend", "the blend", {"use_per": True, "recent_share": 0.25}),
}
BASE, EVALUATIONS = "uniform", 20
TASKS = ("reach", "pendulum", "pendulum-sac", "pairs")
VOLUMES = ("low", "high")
# Environment steps of a run, and of SAC, whose batches have 64 items, the steps between two updates.
STEPS = {
    ("reach", "low"): 256_000,
    ("reach", "high"): 64_000,
    ("pendulum", "low"): 512_000,
    ("pendulum", "high"): 128_000,
    ("pendulum-sac", "low"): 48_000,
    ("pendulum-sac", "high"): 5_000,
    ("pairs", "low"): 60_000,
    ("pairs", "high"): 30_000,
}
UPDATE_EVERY = {"pendulum-sac": {"low": 16, "high": 1}, "pairs": {"low": 32, "high": 4}}
# Of TD3, whose 256 environments step together, with batches of 64: 0.5 and 4 items per step.
UPDATES = {"low": 2, "high": 16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """Task and volume of all arms."""

    task: Literal["reach", "pendulum", "pendulum-sac", "pairs"] = "reach"
    """TD3 with 256 environments as tensors on reach or pendulum, or SAC with one environment on Pendulum-v1 or pairs
    trading."""
    volume: Literal["low", "high"] = "low"
    """Items drawn per step: 0.5 or 4 with TD3, 4 or 64 with pendulum-sac, 2 or 16 with pairs."""
    steps: int | None = None
    """Environment steps of a run, over all environments; None is what the task needs to be learned."""
    num_envs: int = 256
    """Environments of TD3, stepped together."""
    device: str = "cpu"
    """The device of TD3's environments, buffer and nets."""

    @property
    def total(self) -> int:
        """Environment steps of a run."""
        return STEPS[self.task, self.volume] if self.steps is None else self.steps

    @property
    def on_tensors(self) -> bool:
        """True for TD3."""
        return self.task in LIMITS

    @property
    def items_per_step(self) -> float:
        """The replay volume."""
        if self.on_tensors:
            return 64 * UPDATES[self.volume] / self.num_envs
        return 64 / UPDATE_EVERY[self.task][self.volume]

    def config(self, seed: int, **changes: Any) -> SACConfig | TD3Config:
        """Return the settings of one run; `changes` are those of its arm."""
        if self.on_tensors:
            from relive_lab.td3 import TD3Config  # loads PyTorch

            given: dict[str, Any] = {
                "total_steps": self.total,
                "buffer_capacity": self.total,
                "eval_every": self.total // EVALUATIONS,
            }
            size: dict[str, Any] = {
                "num_envs": self.num_envs,
                "batch_size": 64,
                "updates_per_step": UPDATES[self.volume],
            }
            where: dict[str, Any] = {"env": self.task, "limit": LIMITS[self.task], "device": self.device, "seed": seed}
            return TD3Config(**where, **size, **given, **changes)
        every = UPDATE_EVERY[self.task][self.volume]
        if self.task == "pendulum-sac":
            found = pendulum_config(seed, self.total, **changes)
        else:
            learner = PairsLearner(update_every=every, episodes=self.total // EPISODE, num_envs=1)
            found = pairs_config(learner, seed, **changes)
        over = max((self.total - found.start_steps) // every, 1)
        rhythm: dict[str, Any] = {
            "update_every": every,
            "per_beta_anneal_steps": over,
            "eval_every": self.total // EVALUATIONS,
        }
        return dataclasses.replace(found, **rhythm)


DEFAULT_LEARNER = Learner()


def recency(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    learner: tyro.conf.OmitArgPrefixes[Learner] = DEFAULT_LEARNER,
    out: Path = Path("runs/recency"),
) -> int:
    """Compare uniform replay with recency of three shares, with priorities, and with a blend of all three.

    A paper of 2026 (arXiv 2605.10236) finds that recency helps where few items are drawn per step.

    Example: relive-lab compare recency --quick --task reach --volume low

    Args:
        runs: Seeds and processes.
        learner: Task and volume of all arms.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    at_least(learner, num_envs=1, steps=EVALUATIONS * (learner.num_envs if learner.on_tensors else EPISODE))
    evaluator = None
    if learner.task == "pairs":
        from relive_lab import envs  # loads Gymnasium

        evaluator = envs.Episodes(200, HELD_OUT_SEED, **PairsLearner().resolved().market)
    study = Study(
        title=f"{'TD3' if learner.on_tensors else 'SAC'} on {learner.task}, {learner.items_per_step:g} items a step",
        arms=tuple(ARMS),
        baseline=BASE,
        unit="steps",
        measure=evaluations(),
        threshold=None if learner.task == "pairs" else THRESHOLDS[learner.task.removesuffix("-sac")],
        explain=ARMS,
        settings={**dataclasses.asdict(runs), **dataclasses.asdict(learner), "items_per_step": learner.items_per_step},
    )
    work = train_td3 if learner.on_tensors else train
    return study.run(runs, lambda arm, seed: learner.config(seed, **ARMS[arm].changes), out, evaluator, work)


def table(folder: Path) -> list[str]:
    """Return a Markdown table of the comparisons whose folders are in this one: a row for each, a column an arm."""
    arms = [arm for arm in ARMS if arm != BASE]
    lines = [f"| task, items per step, seeds | {BASE} | {' | '.join(arms)} |", "|---" * (len(arms) + 2) + "|"]
    for task in TASKS:
        for volume in VOLUMES:
            file = folder / f"{task}-{volume}" / "summary.json"
            if file.exists():
                found = json.loads(file.read_text(encoding="utf-8"))
                lines.append(_row(f"{task}, {found['settings']['items_per_step']:g}, {len(found['seeds'])}", found))
    return lines


def _row(name: str, found: dict[str, Any]) -> str:
    """Return final values of the baseline, and differences of the others: of final values, then of mean curves."""
    cells, few = [], len(found["seeds"]) < FEWEST
    keys, digits = ("difference", "area_difference"), ".1f" if abs(found["arms"][0]["final"]["value"]) >= 10 else ".3f"
    for arm in found["arms"]:
        if arm["arm"] == BASE:
            cells.append(_shown(arm["final"], digits, " to ", True))
        else:
            cells.append("; ".join(_shown(arm[key], "+" + digits, ", ", few) for key in keys))
    return f"| {name} | {' | '.join(cells)} |"


def _shown(estimate: dict[str, float], spec: str, to: str, plain: bool) -> str:
    value, low, high = (format(estimate[key], spec) for key in ("value", "low", "high"))
    text = f"{value} ({low}{to}{high})"
    return text if plain or estimate["low"] <= 0 <= estimate["high"] else f"**{text}**"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(Path(sys.argv[1]))) + "\n")
