"""`relive-lab compare pairs` and `relive-lab compare pendulum`: ways of drawing, with the same seeds in every arm."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import tyro

from relive.errors import ArgumentError, message
from relive_lab import SACConfig
from relive_lab.studies.arms import Arms
from relive_lab.studies.conduct import at_least
from relive_lab.studies.study import DEFAULT_RUNS, Runs, Study, evaluations

EPISODE = 100  # bars in an episode of PairsTrading
HELD_OUT_SEED = 1_000_000
START_STEPS = 1_000
THRESHOLDS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
PENDULUM_EVAL_EVERY = 250  # steps
# Settings of both studies' runs.
SHARED: dict[str, Any] = {
    "buffer_capacity": 100_000,
    "batch_size": 64,
    "tau": 0.01,
    "target_entropy": -1.0,
    "start_steps": START_STEPS,
    "torch_threads": 1,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsLearner:
    """Environment and learner; what is None depends on the mode."""

    mode: Literal["break", "dislocation"] = "break"
    """What disturbs the pair: breaks of its relation, or rare jumps of its spread that revert."""
    sigma: float | None = None
    """Quiet volatility of the spread; None is 1 in mode break, 0.3 in mode dislocation."""
    cost: float = 0.5
    """Cost of one unit traded."""
    update_every: int | None = None
    """Environment steps between updates; None is 8 in mode break, 16 in mode dislocation."""
    num_envs: int = 1
    """Environments stepped together. Steps and episodes count those of all."""
    hidden: int = 32
    """Width of the two hidden layers."""
    learning_rate: float = 1e-3
    """Adam step size."""
    episodes: int | None = None
    """Training episodes of 100 steps; None is 500, 1,500 in mode dislocation, and four fifths of that with --quick."""
    eval_every: int = 25
    """Training episodes between evaluations."""
    eval_episodes: int = 200
    """Held-out episodes of an evaluation, the same for all."""

    def resolved(self, quick: bool = False) -> PairsLearner:
        """Return the same with what the mode decides filled in; a quick comparison trains four fifths as long."""
        at_least(self, update_every=1, num_envs=1, hidden=1, episodes=1, eval_every=1, eval_episodes=1)
        sigma, update_every, episodes = {"break": (1.0, 8, 500), "dislocation": (0.3, 16, 1_500)}[self.mode]
        defaults: dict[str, Any] = {"sigma": sigma, "update_every": update_every}
        defaults["episodes"] = episodes * 4 // 5 if quick else episodes
        return dataclasses.replace(self, **{n: v for n, v in defaults.items() if getattr(self, n) is None})

    @property
    def market(self) -> dict[str, Any]:
        """Arguments of the environment."""
        return {"mode": self.mode, "sigma": self.sigma, "cost": self.cost}


DEFAULT_LEARNER = PairsLearner()
PAIRS_ARMS, PENDULUM_ARMS = Arms(), Arms(arms=("uniform", "td", "3-step"))


def pairs_config(learner: PairsLearner, seed: int, **changes: Any) -> SACConfig:
    """Return the settings of one run of `relive-lab compare pairs`; `changes` are those of its arm."""
    learner = learner.resolved()
    steps, every = int(learner.episodes or 0) * EPISODE, int(learner.update_every or 0)
    return SACConfig(
        **SHARED,
        env_id="relive/PairsTrading-v0",
        env_kwargs=learner.market,
        total_steps=steps,
        seed=seed,
        per_beta_anneal_steps=max((steps - START_STEPS) // every, 1),
        gamma=0.97,
        learning_rate=learner.learning_rate,
        hidden_sizes=(learner.hidden, learner.hidden),
        init_alpha=0.1,
        update_every=every,
        num_envs=learner.num_envs,
        eval_every=learner.eval_every * EPISODE,
        eval_episodes=learner.eval_episodes,
        **changes,
    )


def pairs(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    arms: tyro.conf.OmitArgPrefixes[Arms] = PAIRS_ARMS,
    learner: tyro.conf.OmitArgPrefixes[PairsLearner] = DEFAULT_LEARNER,
    out: Path = Path("runs/pairs"),
) -> int:
    """Compare uniform with prioritized replay on a simulated pair of stocks.

    Example: relive-lab compare pairs --quick --out runs/pairs

    Args:
        runs: Seeds and processes.
        arms: What is compared.
        learner: Environment and learner.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    from relive_lab import envs  # loads Gymnasium

    learner, chosen = learner.resolved(runs.quick), arms.chosen()
    if int(learner.episodes or 0) < learner.eval_every:
        wanted = f"at least --eval-every ({learner.eval_every})"
        raise ArgumentError(message(wanted, f"`{learner.episodes}`", "--episodes"))
    evaluator = envs.Episodes(learner.eval_episodes, HELD_OUT_SEED, **learner.market)
    rules = {threshold: float(evaluator(envs.ThresholdPolicy(threshold)).mean()) for threshold in THRESHOLDS}
    best = max(rules, key=lambda threshold: rules[threshold])
    study = Study(
        title=f"SAC on PairsTrading, mode {learner.mode}",
        arms=tuple(chosen),
        baseline=arms.baseline,
        unit="episodes",
        measure=evaluations(EPISODE),
        reference=(f"the rule |spread| > {best:g}", rules[best]),
        explain=chosen,
        settings={**dataclasses.asdict(runs), **dataclasses.asdict(arms), **dataclasses.asdict(learner)},
    )

    def configure(arm: str, seed: int) -> SACConfig:
        return pairs_config(learner, seed, **arms.settings(chosen[arm]))

    return study.run(runs, configure, out, evaluator)


def pendulum_config(seed: int, steps: int, **changes: Any) -> SACConfig:
    """Return the settings of one run of `relive-lab compare pendulum`; `changes` are those of its arm."""
    return SACConfig(
        **SHARED,
        env_id="Pendulum-v1",
        total_steps=steps,
        seed=seed,
        per_beta_anneal_steps=max(steps - START_STEPS, 1),
        learning_rate=1e-3,
        hidden_sizes=(64, 64),
        init_alpha=1.0,  # with 0.1, single episodes still fail now and then long after the mean is good
        reward_scale=0.1,
        eval_every=PENDULUM_EVAL_EVERY,
        eval_episodes=16,
        **changes,
    )


def pendulum(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    arms: tyro.conf.OmitArgPrefixes[Arms] = PENDULUM_ARMS,
    steps: int = 5_000,
    out: Path = Path("runs/pendulum"),
) -> int:
    """Compare uniform with prioritized and 3-step replay on Pendulum-v1, which all of them solve.

    Example: relive-lab compare pendulum --quick --out runs/pendulum

    Args:
        runs: Seeds and processes.
        arms: What is compared.
        steps: Environment steps of a run.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    if steps < PENDULUM_EVAL_EVERY:
        raise ArgumentError(message(f"at least {PENDULUM_EVAL_EVERY}", f"`{steps}`", "--steps"))
    chosen = arms.chosen()
    study = Study(
        title="SAC on Pendulum-v1",
        arms=tuple(chosen),
        baseline=arms.baseline,
        unit="steps",
        measure=evaluations(),
        threshold=-200.0,
        explain=chosen,
        settings={**dataclasses.asdict(runs), **dataclasses.asdict(arms), "steps": steps},
    )
    return study.run(runs, lambda arm, seed: pendulum_config(seed, steps, **arms.settings(chosen[arm])), out)
