"""Many training runs at once, one process each, with live progress and a clean end."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import queue
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relive import lab
from relive._interrupt import INTERRUPTED, children_deaf_to_interrupts, interruptible
from relive.errors import ArgumentError, message
from relive.lab import Progress as Report
from relive.lab import TrainerConfig, TrainResult

Evaluator = Callable[[Callable[[Any], Any]], Any]
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 20.0
QUICK_SEEDS = 4


def at_least(options: object, **lows: int) -> None:
    """Refuse options, named as fields of `options`, that are given and lower than this."""
    for name, low in lows.items():
        value = getattr(options, name)
        if value is not None and value < low:
            raise ArgumentError(message(f"at least {low}", f"`{value}`", f"--{name.replace('_', '-')}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs:
    """Seeds and processes of a comparison."""

    seeds: int = 10
    """Seeds in each arm; one seed gives the same initial weights and environment in all arms."""
    first_seed: int = 0
    """The first seed; the others follow."""
    quick: bool = False
    """At most 4 seeds: a sooner answer, with wide intervals."""
    jobs: int = os.cpu_count() or 1
    """Processes at a time; one for each processor unless given."""

    def chosen(self) -> range:
        """Return the seeds to run."""
        at_least(self, first_seed=0, seeds=1, jobs=1)
        return range(self.first_seed, self.first_seed + (min(self.seeds, QUICK_SEEDS) if self.quick else self.seeds))


DEFAULT_RUNS = Runs()


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: an arm of a comparison under one seed; `evaluator` must be picklable."""

    arm: str
    seed: int
    config: TrainerConfig
    evaluator: Evaluator | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a job: a result, complete or not, or the reason why there is none."""

    job: Job
    result: TrainResult | None
    complete: bool
    error: str = ""


def status(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> int:
    """Return the exit status of a comparison that meant to run `jobs`."""
    if any(outcome.error for outcome in outcomes):
        return 1
    whole = len(outcomes) == len(jobs) and all(outcome.complete for outcome in outcomes)
    return 0 if whole else INTERRUPTED


def paired(
    outcomes: Sequence[Outcome], arms: Collection[str], usable: Callable[[TrainResult], bool]
) -> tuple[list[int], dict[str, list[TrainResult]], bool]:
    """Return the seeds of which every arm has a usable result, the results by arm, and whether all runs are whole.

    Where there are whole runs, the others are left out.
    """
    found: dict[int, dict[str, tuple[TrainResult, bool]]] = {}
    for outcome in outcomes:
        if outcome.result is not None and usable(outcome.result):
            found.setdefault(outcome.job.seed, {})[outcome.job.arm] = outcome.result, outcome.complete
    everywhere = {seed: runs for seed, runs in sorted(found.items()) if len(runs) == len(arms)}
    whole = {seed: runs for seed, runs in everywhere.items() if all(complete for _, complete in runs.values())}
    chosen = whole or everywhere
    return list(chosen), {arm: [runs[arm][0] for runs in chosen.values()] for arm in arms}, bool(whole)


def trainer_of(config: TrainerConfig) -> Any:
    """Return the class that trains by settings of this kind; PyTorch is loaded with it."""
    return getattr(lab, type(config).__name__.removesuffix("Config") + "Trainer")


def run(jobs: Sequence[Job], workers: int, console: Console) -> list[Outcome]:
    """Run all jobs on `workers` processes.

    Ctrl-C ends every run at its next report and returns what was reached; a second one ends the processes at once.

    Returns:
        Outcomes in the order of `jobs`; jobs that never started are left out.
    """
    context = multiprocessing.get_context("spawn")
    tasks, reports, stop = context.Queue(), context.Queue(), context.Event()
    workers = min(workers, len(jobs))
    for item in [*enumerate(jobs), *[None] * workers]:
        tasks.put(item)
    processes = [context.Process(target=_worker, args=(tasks, reports, stop), daemon=True) for _ in range(workers)]
    with interruptible() as wish:
        with children_deaf_to_interrupts(), _one_thread_each():
            for process in processes:
                process.start()
        try:
            display = _Display(jobs, console)
            with display.bars:
                outcomes = _collect(jobs, processes, reports, stop, wish, display)
        finally:
            tasks.cancel_join_thread()  # jobs that nobody will take must not hold up our own end
            _end(processes, stop)
    return [outcomes[index] for index in sorted(outcomes)]


def _collect(
    jobs: Sequence[Job], processes: list[Any], reports: Any, stop: Any, wish: Any, display: _Display
) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    running: dict[int, int] = {}
    while len(outcomes) < len(jobs):
        if wish.is_set() and not stop.is_set():
            stop.set()
            display.say("Ending the runs; Ctrl-C again ends at once.")
        try:
            kind, pid, index, content = reports.get(timeout=POLL_SECONDS)
        except queue.Empty:
            dead = {process.pid: process.exitcode for process in processes if process.exitcode is not None}
            lost = {running.pop(pid): dead[pid] for pid in running.keys() & dead.keys()}
            if len(dead) == len(processes) and not stop.is_set():
                # A process may end before its first report has left it; nobody will take up the jobs that remain.
                status = next((code for code in dead.values() if code), 0)
                lost |= {index: status for index in range(len(jobs)) if index not in outcomes and index not in lost}
            for index, status in lost.items():
                outcomes[index] = Outcome(jobs[index], None, False, f"its process ended with status {status}")
                display.finished(index, outcomes[index])
            if len(dead) == len(processes):
                break
            continue
        if kind == "progress":
            running[pid] = index
            display.moved(index, content)
        else:
            running.pop(pid, None)
            error = content if kind == "failed" else ""
            outcomes[index] = Outcome(jobs[index], None if error else content, kind == "done", error)
            display.finished(index, outcomes[index])
    return outcomes


def _worker(tasks: Any, reports: Any, stop: Any) -> None:
    """Run jobs until there are no more; never raises."""
    parent = multiprocessing.parent_process()
    pid = os.getpid()

    def going() -> bool:
        return not stop.is_set() and (parent is None or parent.is_alive())

    while going():
        item = tasks.get()
        if item is None:
            return
        index, job = item

        def report(progress: Report, index: int = index) -> bool:
            reports.put(("progress", pid, index, progress))
            return going()

        try:
            trainer = trainer_of(job.config)(job.config, evaluator=job.evaluator)
            result = trainer.train(report)
            trainer.close()
            kind = "done" if result.steps >= job.config.total_steps else "partial"
            reports.put((kind, pid, index, result))
        except Exception:
            reports.put(("failed", pid, index, traceback.format_exc()))


def _end(processes: list[Any], stop: Any) -> None:
    """Let processes end by themselves, then make them."""
    stop.set()
    try:
        for process in processes:
            process.join(PATIENCE_SECONDS)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started inside use one thread for linear algebra, unless the user says otherwise."""
    added = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


class _Display:
    """A bar for the whole, and one for each run that is going on; plain lines where output is no terminal."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self._jobs, self._console = jobs, console
        columns = (
            TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )  # fmt: skip
        self.bars = Progress(*columns, console=console, transient=True)
        steps = sum(job.config.total_steps for job in jobs)
        self._whole = self.bars.add_task("all runs (steps)", total=steps, note="")
        self._tasks: dict[int, Any] = {}
        self._done: dict[int, int] = {}
        self._ended = 0

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow")

    def moved(self, index: int, progress: Report) -> None:
        if index not in self._tasks:
            job = self._jobs[index]
            self._tasks[index] = self.bars.add_task(f"{job.arm}, seed {job.seed}", total=progress.total_steps, note="")
        self.bars.update(self._tasks[index], completed=progress.step, note=f"return {progress.eval_return:.3g}")
        self._account(index, progress.step)

    def finished(self, index: int, outcome: Outcome) -> None:
        if index in self._tasks:
            self.bars.remove_task(self._tasks.pop(index))
        self._ended += 1
        self._account(index, self._jobs[index].config.total_steps)
        self.bars.update(self._whole, note=f"{self._ended} of {len(self._jobs)} runs")
        job, result = outcome.job, outcome.result
        if outcome.error:
            self.say(f"{job.arm}, seed {job.seed}, failed:\n{outcome.error}")
        elif result is not None and not self._console.is_terminal and len(result.eval_returns):
            text = f"return {result.eval_returns[-1].mean():.3g} after {result.steps} steps, {result.seconds:.0f} s"
            self._console.print(f"[{self._ended}/{len(self._jobs)}] {job.arm}, seed {job.seed}: {text}", markup=False)

    def _account(self, index: int, steps: int) -> None:
        self._done[index] = steps
        self.bars.update(self._whole, completed=sum(self._done.values()))
