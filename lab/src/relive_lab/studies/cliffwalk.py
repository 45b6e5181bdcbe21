"""`relive-lab compare cliffwalk`: how much sooner prioritized replay finds one reward, where everything is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import tyro

from relive.errors import ArgumentError, message
from relive_lab.cliffwalk import LEARNERS, Walk
from relive_lab.studies.cliffwalk_report import Cell, Findings, Found
from relive_lab.studies.conduct import at_least, conduct
from relive_lab.studies.runner import Outcome, Report
from relive_lab.studies.study import Runs

LENGTHS = (2, 4, 6, 8, 10, 12, 14)
QUICK_LENGTHS = (4, 6, 8, 10)
SEEDS, QUICK_SEEDS, LONG_SEEDS, NETWORK_SEEDS, QUICK_NETWORK_SEEDS = 30, 10, 10, 20, 5
# Beyond this length a run takes seconds: fewer seeds, and no sweep of beta, which is judged at 12.
LONG = 12
# The network needs some length before replay matters, and gradient steps cost far more than updates of a table.
NETWORK_LENGTHS = (6, 8, 10, 12)
SHOWN = {
    "table": LEARNERS["table"],
    "linear": ("uniform", "prop 0.6"),
    "network": LEARNERS["network"],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Runs):
    """The choice of runs."""

    n: tuple[int, ...] = ()
    """Lengths of the chain, 2 to 20; 2 4 6 8 10 12 14 unless given. The memory has 2**(n+1) - 2 transitions."""
    seeds: int = SEEDS
    """Seeds in each arm; at most 10 beyond n = 12, at most 20 for the network."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Which learners: `table`, `linear` (a bias that all values share), `network` (64 units and Adam)."""
    quick: bool = False
    """At most 10 seeds (5 for the network), and n up to 10 unless given: well under a minute."""

    def walks(self) -> list[Walk]:
        """Return all runs, short chains first: a run that is ended early has whole rows to show."""
        at_least(self, seeds=1, first_seed=0, jobs=1)
        for learner in self.learners:
            if learner not in LEARNERS:
                raise ArgumentError(message("`table`, `linear` or `network`", f"`{learner}`", "--learners"))
        lengths = self.n or (QUICK_LENGTHS if self.quick else LENGTHS)
        for n in lengths:
            if not 2 <= n <= 20:
                raise ArgumentError(message("lengths from 2 to 20", f"`{n}`", "--n"))
        cells = [(n, learner) for n in sorted(set(lengths)) for learner in LEARNERS if learner in self.learners]
        return [
            Walk(n=n, learner=learner, arm=arm, seed=seed)
            for n, learner in cells
            for seed in self._seeds(n, learner)
            for arm in SHOWN[learner]
            if n <= LONG or "beta" not in arm
        ]

    def _seeds(self, n: int, learner: str) -> Iterable[int]:
        count = min(self.seeds, QUICK_SEEDS) if self.quick else self.seeds
        if learner == "network":
            wanted = self.n or (QUICK_LENGTHS[-1:] if self.quick else NETWORK_LENGTHS)
            count = min(count, QUICK_NETWORK_SEEDS if self.quick else NETWORK_SEEDS) if n in wanted else 0
        elif n > LONG:
            count = min(count, LONG_SEEDS)
        return range(self.first_seed, self.first_seed + count)


DEFAULT = Options()


def cliffwalk(
    runs: tyro.conf.OmitArgPrefixes[Options] = DEFAULT,
    out: Path = Path("runs/cliffwalk"),
) -> int:
    """Replay rules on the Blind Cliffwalk: updates until Q-learning knows a chain of n states.

    Schaul et al.'s own test of prioritized replay (2016, section 3.1): one transition of 2**(n+1) - 2 has a reward.
    Ends with 1 if a figure lies outside the bars that are printed below the tables.

    Example: relive-lab compare cliffwalk --quick --out runs/cliffwalk

    Args:
        runs: What is run.
        out: Folder for cliffwalk.png, cliffwalk.csv and summary.json.
    """

    def find(outcomes: Sequence[Outcome[Walk]]) -> Findings | None:
        found = gather((outcome.task, outcome.result) for outcome in outcomes if outcome.complete)
        return Findings(found, dataclasses.asdict(runs)) if found else None

    return conduct("Blind Cliffwalk", runs.walks(), _run, runs.jobs, find, out, bars_decide=True)


def gather(results: Iterable[tuple[Walk, float]]) -> Found:
    """Return updates by cell and seed, in the order of learners, lengths and arms."""
    found: dict[Cell, dict[int, float]] = {}
    for walk, updates in results:
        found.setdefault(Cell(walk.learner, walk.n, walk.arm), {})[walk.seed] = updates
    known = [(learner, arm) for learner, arms in LEARNERS.items() for arm in arms]
    by_arm = sorted(found, key=lambda cell: known.index((cell.learner, cell.arm)))
    cells = sorted(by_arm, key=lambda cell: (list(LEARNERS).index(cell.learner), cell.n))
    return {cell: dict(sorted(found[cell].items())) for cell in cells}


def _run(walk: Walk, report: Report) -> tuple[float | None, bool]:
    updates = walk.run(report)
    return updates, updates is not None
