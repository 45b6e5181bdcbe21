"""`relive-lab compare final-observations`: what the last item of an episode bootstraps from at a time limit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import tyro

from relive_lab import TrainResult
from relive_lab.studies.arms import Arm
from relive_lab.studies.conduct import at_least
from relive_lab.studies.runner import Report
from relive_lab.studies.study import DEFAULT_RUNS, Job, Runs, Study, evaluations

if TYPE_CHECKING:
    from relive_lab.td3 import TD3Config

ARMS = {
    "final obs": Arm("final obs", "the final observation", {"ends": "final"}),
    "reset obs": Arm("reset obs", "bootstrapping from the reset observation", {"ends": "reset"}),
    "nothing": Arm("nothing", "taking a time limit for an end", {"ends": "none"}),
}
BASE = "final obs"
EVALUATIONS = 10
LIMITS = {"reach": 30, "pendulum": 200}  # steps of a training episode
THRESHOLDS = {"reach": -20.0, "pendulum": -200.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """Environment and learner of all arms."""

    env: Literal["reach", "pendulum"] = "reach"
    """A point that is to reach a goal far from its start, or Pendulum-v1, which starts anywhere."""
    limit: int | None = None
    """Steps of a training episode; None is 30 for reach, 200 for pendulum."""
    steps: int = 256_000
    """Environment steps of a run, over all environments."""
    num_envs: int = 256
    """Environments, stepped together."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    use_per: bool = False
    """Draw by TD error instead of uniformly."""
    device: str = "cpu"
    """Where environments, buffer and nets live."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of a run that all arms share."""
        at_least(self, limit=1, num_envs=1, n_step=1, steps=EVALUATIONS * self.num_envs)
        shared = dataclasses.asdict(self)
        steps = shared.pop("steps")
        return {
            **shared,
            "limit": LIMITS[self.env] if self.limit is None else self.limit,
            "total_steps": steps,
            "buffer_capacity": steps,
            "eval_every": steps // EVALUATIONS,
        }


DEFAULT_LEARNER = Learner()


def train(job: Job, report: Report) -> tuple[TrainResult, bool]:
    """Do one run; return its result, and whether it came to its end."""
    from relive_lab import td3  # loads PyTorch

    config = cast("TD3Config", job.config)
    result = td3.train(
        config, lambda now: report(now.step / now.total_steps, f"return {now.eval_return:.3g} at {now.step} steps")
    )
    return result, result.steps >= config.total_steps


def final_observations(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    learner: tyro.conf.OmitArgPrefixes[Learner] = DEFAULT_LEARNER,
    out: Path = Path("runs/final-observations"),
) -> int:
    """Compare true final observations with reset observations at time limits: TD3 on a `DeviceBuffer`.

    Simulators on a GPU reset by themselves, and many learners take the next episode's first observation for the final
    one. A third arm bootstraps from nothing there, as if the time limit were an end.

    Example: relive-lab compare final-observations --seeds 3 --n-step 3

    Args:
        runs: Seeds and processes.
        learner: Environment and learner of all arms.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    shared = learner.settings()
    from relive_lab.td3 import TD3Config  # loads PyTorch

    study = Study(
        title=f"TD3 on {learner.env}, episodes of {shared['limit']} steps",
        arms=tuple(ARMS),
        baseline=BASE,
        unit="steps",
        measure=evaluations(),
        last=3,
        threshold=THRESHOLDS[learner.env],
        explain=ARMS,
        settings={**dataclasses.asdict(runs), **shared},
    )

    def configure(arm: str, seed: int) -> TD3Config:
        return TD3Config(**shared, **ARMS[arm].changes, seed=seed)

    return study.run(runs, configure, out, work=train)
