"""Many runs on several processes: live progress, and a clean end after Ctrl-C or the death of a process."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, Generic, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from relive.cli.terminal import INTERRUPTED, interruptible
from relive_lab.children import children_ignore_interrupts, one_thread_each

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 20.0
# With more runs than this, output to a file gets a line for each tenth of the work instead of for each run.
MANY_RUNS = 500


class Task(Protocol):
    """One run of a study; `cost` is how long it takes, in a unit that all runs of the study share."""

    @property
    def label(self) -> str:
        """The name of the run."""

    @property
    def cost(self) -> float:
        """The time that it takes."""


T = TypeVar("T", bound=Task)
# Called by a run with the share of it that is done and a note, or without to report nothing; False: end early.
Report = Callable[..., bool]
Work = Callable[[T, Report], tuple[Any, bool]]


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[T]):
    """The outcome of a task: a result, complete or not, or the reason why there is none."""

    task: T
    result: Any
    complete: bool
    error: str = ""


def exit_status(tasks: Sequence[Any], outcomes: Sequence[Outcome[Any]]) -> int:
    """Return the exit status of a study that was to run `tasks`."""
    if any(outcome.error for outcome in outcomes):
        return 1
    return 0 if len(outcomes) == len(tasks) and all(outcome.complete for outcome in outcomes) else INTERRUPTED


def run_all(tasks: Sequence[T], work: Work[T], on_report: Display, workers: int) -> list[Outcome[T]]:
    """Run all tasks, in order, on `workers` processes, and show how they go on a display.

    Ctrl-C ends every run at its next report; a second one ends the processes at once.

    Args:
        tasks: Picklable.
        work: A picklable function that does one task in another process. It takes the task and a `Report`, returns a
            result and whether that is complete, and may raise.
        on_report: Shows reports and outcomes.
        workers: Processes.

    Returns:
        Outcomes in the order of `tasks`; tasks that were never started are left out.
    """
    crew = _Crew(tasks, work, on_report)
    with interruptible() as stop, on_report.bars:
        crew.start(min(workers, len(tasks)))
        try:
            crew.serve(stop)
        except BaseException:
            crew.kill()
            raise
        finally:
            crew.end()
    return [crew.outcomes[index] for index in sorted(crew.outcomes)]


class _Crew(Generic[T]):
    """Processes with a pipe each, so that the task of a process that dies is known, and no lock is lost with it."""

    def __init__(self, tasks: Sequence[T], work: Work[T], display: Display) -> None:
        self._tasks, self._work, self._display = tasks, work, display
        self._waiting = iter(range(len(tasks)))
        self._processes: dict[Any, Any] = {}  # by our end of the pipe
        self._running: dict[Any, int] = {}  # the task's index, likewise
        self._stopping = False
        self.outcomes: dict[int, Outcome[T]] = {}

    def start(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        with children_ignore_interrupts(), one_thread_each():
            for _ in range(workers):
                ours, theirs = context.Pipe()
                self._processes[ours] = context.Process(target=_serve, args=(theirs, self._work), daemon=True)
                self._processes[ours].start()
                theirs.close()  # so that the end of the process closes the pipe

    def serve(self, stop: threading.Event) -> None:
        for pipe in self._processes:
            self._next(pipe)
        while self._running:
            if stop.is_set() and not self._stopping:
                self._stopping = True
                self._display.say("Ending the runs; Ctrl-C again ends at once.")
                for pipe in self._running:
                    _send(pipe, None)
            for pipe in wait(list(self._running), POLL_SECONDS):
                self._hear(pipe)

    def _next(self, pipe: Any) -> None:
        index = None if self._stopping else next(self._waiting, None)
        if index is not None:
            self._running[pipe] = index
            _send(pipe, self._tasks[index])

    def _hear(self, pipe: Any) -> None:
        index = self._running[pipe]
        try:
            reported, content = pipe.recv()
        except (EOFError, OSError):
            self._processes[pipe].join()
            reported, content = None, (None, False, f"its process ended with status {self._processes[pipe].exitcode}")
        if reported:
            self._display.moved(index, *content)
            return
        self.outcomes[self._running.pop(pipe)] = Outcome(self._tasks[index], *content)
        self._display.ended(index, content[2])
        if reported is not None:
            self._next(pipe)

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    def end(self) -> None:
        for pipe, process in self._processes.items():
            _send(pipe, None)  # a process that waits for a task ends, even one that has a copy of this end of the pipe
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


def _send(pipe: Any, item: object) -> None:
    # A process that died is noticed when its pipe is read.
    with contextlib.suppress(OSError):
        pipe.send(item)


def _serve(pipe: Any, work: Work[T]) -> None:
    """Do tasks in a process until the parent sends None, closes the pipe, or dies."""

    def report(share: float = 0.0, note: str = "") -> bool:
        if note:
            _send(pipe, (True, (share, note)))
        return not pipe.poll()

    with contextlib.suppress(EOFError, OSError):
        while (task := pipe.recv()) is not None:
            try:
                answer = (*work(task, report), "")
            except Exception:
                answer = (None, False, traceback.format_exc())
            pipe.send((False, answer))


class Display:
    """A bar for all runs and one for each run in progress; plain lines where output is not a terminal."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        self._tasks, self._console = tasks, console
        columns = (TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, TextColumn("{task.fields[note]}"), console=console, transient=True)
        self._whole = self.bars.add_task("all runs", total=sum(task.cost for task in tasks), note="")
        self._bars: dict[int, Any] = {}
        self._costs: dict[int, float] = {}  # done so far, by task
        self._notes: dict[int, str] = {}
        self._ended, self._printed = 0, 0.0

    def say(self, text: str) -> None:
        """Print a remark about the whole."""
        self._console.print(text, style="yellow", markup=False)

    def moved(self, index: int, share: float, note: str) -> None:
        """Show that a share of a run is done."""
        if index not in self._bars:
            self._bars[index] = self.bars.add_task(self._tasks[index].label, total=1.0, note="")
        self.bars.update(self._bars[index], completed=share, note=note)
        self._notes[index] = note
        self._account(index, share)

    def ended(self, index: int, error: str) -> None:
        """Show that a run has ended, well or not."""
        if index in self._bars:
            self.bars.remove_task(self._bars.pop(index))
        self._ended += 1
        self._account(index, 1.0)
        label = self._tasks[index].label
        self.bars.update(self._whole, note=f"{self._ended} of {len(self._tasks)}, {label}")
        if error:
            self.say(f"{label}, failed:\n{error}")
        elif not self._console.is_terminal and self._is_due():
            note = f": {self._notes[index]}" if index in self._notes else ""
            self._console.print(f"[{self._ended}/{len(self._tasks)}] {label}{note}", markup=False)

    def _is_due(self) -> bool:
        share = self.bars.tasks[0].percentage
        due = len(self._tasks) <= MANY_RUNS or share >= self._printed + 10 or self._ended == len(self._tasks)
        self._printed = share if due else self._printed
        return due

    def _account(self, index: int, share: float) -> None:
        self._costs[index] = share * self._tasks[index].cost
        self.bars.update(self._whole, completed=sum(self._costs.values()))
