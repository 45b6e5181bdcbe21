"""`relive compare cliffwalk`: how much sooner prioritized replay finds the one reward, where everything is known."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path

import tyro
from rich.console import Console

from relive._interrupt import INTERRUPTED
from relive.errors import ArgumentError, message
from relive.lab.cliffwalk import LEARNERS, Walk
from relive.lab.studies._cliffwalk_report import (
    Cell,
    Found,
    bars,
    bars_table,
    details_table,
    heading,
    medians_table,
    write,
)
from relive.lab.studies._pool import going, run_all
from relive.lab.studies._runs import at_least

LENGTHS = (2, 4, 6, 8, 10, 12, 14)
QUICK_LENGTHS = (4, 6, 8, 10)
SEEDS, QUICK_SEEDS, LONG_SEEDS, NETWORK_SEEDS, QUICK_NETWORK_SEEDS = 30, 10, 10, 20, 5
# Beyond this length a run takes seconds: fewer seeds, and no sweep of beta, which is judged at 12.
LONG = 12
# The network needs some length before replay matters, and gradient steps cost far more than updates of a table.
NETWORK_LENGTHS = (6, 8, 10, 12)
SHOWN = {
    "table": LEARNERS["table"],
    "linear": ("uniform", "prop 0.6", "rank 0.7"),
    "network": LEARNERS["network"],
}
# Seconds of a run are about this many microseconds times the memory's size; for the progress bar.
COSTS = {"uniform": 20, "oracle": 3, "rank": 90, "greedy": 50, "beta 1": 190, "beta 0.4": 30, "prop": 18}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is run."""

    n: tuple[int, ...] = ()
    """Lengths of the chain, 2 to 20; 2 4 6 8 10 12 14 unless given. The memory has 2**(n+1) - 2 transitions."""
    seeds: int = SEEDS
    """Seeds in each arm; at most 10 beyond n = 12, at most 20 for the network."""
    first_seed: int = 0
    """The first seed; the others follow."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Which learners: `table`, `linear` (a bias that all values share), `network` (64 units and Adam)."""
    quick: bool = False
    """At most 10 seeds (5 for the network), and n up to 10 unless given: well under a minute."""
    jobs: int = os.cpu_count() or 1
    """Processes at a time; one for each processor unless given."""

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

    Example: relive compare cliffwalk --quick --out runs/cliffwalk

    Args:
        runs: What is run.
        out: Folder for cliffwalk.png, cliffwalk.csv and summary.json.
    """
    console = Console()
    walks = runs.walks()
    processes = min(runs.jobs, len(walks))
    console.print(f"Blind Cliffwalk: {len(walks)} runs on {processes} processes, same seeds in every arm", markup=False)
    results, errors = run_all(_run, walks, [_cost(walk) for walk in walks], processes, console, _name)
    for error in errors:
        console.print(error, style="red", markup=False)
    found = gather((walk, updates) for walk, updates in results.items() if updates is not None)
    if not found:
        console.print("No run was finished: nothing to show.")
        return 1 if errors else INTERRUPTED
    judged = bars(found)
    for learner in LEARNERS:
        if any(cell.learner == learner for cell in found):
            for shown in (heading(found, learner), medians_table(found, learner), details_table(found, learner)):
                console.print(shown)
    if judged:
        console.print("Bars", bars_table(judged))
    for path in write(found, judged, dataclasses.asdict(runs), out):
        console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if errors or any(bar.holds is False for bar in judged):
        return 1
    return 0 if sum(len(cell) for cell in found.values()) == len(walks) else INTERRUPTED


def gather(results: Iterable[tuple[Walk, float]]) -> Found:
    """Return updates by cell and seed."""
    found: dict[Cell, dict[int, float]] = {}
    for walk, updates in results:
        found.setdefault(Cell(walk.learner, walk.n, walk.arm), {})[walk.seed] = updates
    return {cell: dict(sorted(found[cell].items())) for cell in sorted(found, key=_place)}


def _place(cell: Cell) -> tuple[int, int, int]:
    return list(LEARNERS).index(cell.learner), cell.n, LEARNERS[cell.learner].index(cell.arm)


def _run(walk: Walk) -> float | None:
    return walk.run(going)


def _name(walk: Walk) -> str:
    return f"{walk.learner}, n = {walk.n}, {walk.arm}, seed {walk.seed}"


def _cost(walk: Walk) -> float:
    if walk.learner == "network":
        return 1e6 * (0.2 + 2.0 ** (walk.n - 12))
    factor: int = next(cost for word, cost in COSTS.items() if word in walk.arm)
    return 1e3 + walk.memory_size * factor
