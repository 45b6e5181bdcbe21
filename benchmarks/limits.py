"""What limits relive where it misses what it is asked to reach? Measures that beside relive's own time, in turns.

    python -m benchmarks.limits [--quick] [--core CORE] [CASE ...]

Everything of a case runs in this process, chunk by chunk in turn: only ratios within a case count. The last column is
over the case's first line. Where other processes had the core most of the time, CPU time is what is shown.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks import limit_draws, limit_machine, limit_sequences, limit_trajectories, limit_writes
from benchmarks.harness import Chunk, idlest_core, summarize, undisturbed
from benchmarks.limit_cases import Case, Fact, Runs
from benchmarks.question import FULL, QUICK, Cell, Run, Scale
from benchmarks.worker import pin

CASES: dict[str, Case] = {
    **limit_writes.CASES,
    **limit_draws.CASES,
    **limit_sequences.CASES,
    **limit_trajectories.CASES,
    **limit_machine.CASES,
}
ROUNDS, ENOUGH = 60, 12  # of a full run
SECONDS = 8.0  # after which a case makes no more rounds than it needs


class Line(NamedTuple):
    """A line of the table: what was measured, as text, and how it compares with the case's first line."""

    label: str
    figure: str
    over: str


def lines(case: Case, scale: Scale) -> Iterator[Line]:
    """Measure a case."""
    found = case(scale)
    if not isinstance(found, dict):
        yield from (Line(fact.label, fact.figure, "") for fact in found)
        return
    cells = take_turns(found, scale)
    first = next(iter(cells.values())).p20
    for label, cell in cells.items():
        yield Line(label, f"{shown(cell.p20)} ({shown(cell.median)})", f"{cell.p20 / first:.2f}")


def take_turns(runs: Runs, scale: Scale) -> dict[str, Cell]:
    """Time every run chunk by chunk, in turn; a quarter of a chunk goes before, untimed, to have the caches back."""
    calls = {label: fitting(run, scale.chunk) for label, run in runs.items()}
    gc.collect()
    gc.freeze()
    rounds, labels = min(scale.rounds, ROUNDS), list(runs)
    enough = min(ENOUGH, (rounds + 1) // 2)
    chunks: dict[str, list[Chunk]] = {label: [] for label in runs}
    begun = time.perf_counter()
    for turn in range(2 * rounds):
        if turn >= enough and time.perf_counter() - begun > SECONDS:
            break
        if turn >= rounds and all(len(undisturbed(some)) >= enough for some in chunks.values()):
            break
        shift = turn % len(labels)
        for label in labels[shift:] + labels[:shift]:
            if calls[label] > 1:
                runs[label](max(1, calls[label] // 4))
            chunks[label].append(timed(runs[label], calls[label]))
    gc.unfreeze()
    return {label: summarize(alone(some, enough), calls[label], enough) for label, some in chunks.items()}


def alone(chunks: list[Chunk], enough: int) -> list[Chunk]:
    """Return the chunks as they are where enough were undisturbed; else, of all, what they had of the core."""
    if len(undisturbed(chunks)) >= enough:
        return chunks
    return [chunk._replace(wall=min(chunk.cpu, chunk.wall)) for chunk in chunks]


def timed(run: Run, calls: int) -> Chunk:
    cpu, wall = time.process_time(), time.perf_counter()
    own = run(calls)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Chunk(wall, cpu) if own is None else Chunk(*own)


def fitting(run: Run, seconds: float) -> int:
    """Return how many calls take about so long."""
    run(1)
    calls, spent = 1, timed(run, 1).wall
    while spent < seconds / 2:
        calls *= 2
        spent = timed(run, calls).wall
    return max(1, round(calls * seconds / spent))


def shown(figure: float) -> str:
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2 if figure >= 1 else 3
    return f"{figure:,.{digits}f}"


def main(arguments: list[str] | None = None, say: Callable[[str], None] = lambda line: print(line, flush=True)) -> None:
    """Print the table, case by case as they are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and chunks")
    parser.add_argument("--core", type=int, help="the core to run on; default: the one that idles most")
    given = parser.parse_args(arguments)
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    pin(idlest_core() if given.core is None else given.core)
    show(given.cases or list(CASES), QUICK if given.quick else FULL, say)


def show(names: list[str], scale: Scale, say: Callable[[str], None]) -> None:
    say("| | measured | µs, 20th percentile (median) | over the first |\n|---|---|---:|---:|")
    for name in names:
        for number, line in enumerate(lines(CASES[name], scale)):
            say(f"| {'' if number else name} | {line.label} | {line.figure} | {line.over} |")


__all__ = ["CASES", "Fact", "main", "show", "take_turns"]

if __name__ == "__main__":
    main()
