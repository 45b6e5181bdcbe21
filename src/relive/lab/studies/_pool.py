"""Many small tasks on a few processes, with a progress bar and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from relive._interrupt import children_deaf_to_interrupts, interruptible

Task = TypeVar("Task")
Result = TypeVar("Result")
POLL_SECONDS = 0.2

_stop: Any = None  # in a worker: the event that asks it to end


def going() -> bool:
    """Whether a task in a worker is still wanted; tasks ask now and then."""
    return _stop is None or not _stop.is_set()


def run_all(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    costs: Sequence[float],
    workers: int,
    console: Console,
    name: Callable[[Task], str],
) -> tuple[dict[Task, Result], list[str]]:
    """Do all tasks on `workers` processes, in order; tasks and `work` must be picklable.

    Ctrl-C ends every task at its next question to `going`; a second one ends the processes at once.

    Args:
        work: What to do with a task.
        tasks: Distinct and hashable.
        costs: How long each takes, in any unit, for the bar.
        workers: Processes.
        console: Where the bar goes; where it is no terminal, a line every tenth of the whole.
        name: What to call a task.

    Returns:
        Results by task, and what went wrong; tasks that were never started are in neither.
    """
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    ended: queue.SimpleQueue[tuple[int, Future[Result]]] = queue.SimpleQueue()
    others = set(multiprocessing.active_children())
    with interruptible() as wish:
        pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _begin, (stop,))
        try:
            with children_deaf_to_interrupts():
                for index, task in enumerate(tasks):
                    future = pool.submit(work, task)
                    future.add_done_callback(lambda future, index=index: ended.put((index, future)))  # type: ignore[misc]
            display = _Display(costs, console)
            with display.bars:
                return _collect(pool, tasks, ended, stop, wish, display, name)
        except KeyboardInterrupt:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _collect(
    pool: ProcessPoolExecutor,
    tasks: Sequence[Task],
    ended: queue.SimpleQueue[tuple[int, Future[Result]]],
    stop: Any,
    wish: threading.Event,
    display: _Display,
    name: Callable[[Task], str],
) -> tuple[dict[Task, Result], list[str]]:
    results: dict[Task, Result] = {}
    errors: list[str] = []
    left = len(tasks)
    while left:
        if wish.is_set() and not stop.is_set():
            stop.set()
            display.say("Ending; Ctrl-C again ends at once.")
            pool.shutdown(wait=False, cancel_futures=True)
        try:
            index, future = ended.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        left -= 1
        if future.cancelled():
            continue
        task, error = tasks[index], future.exception()
        if isinstance(error, BrokenProcessPool):
            errors.append("a process ended before its task did; out of memory?")
            break
        if error is None:
            results[task] = future.result()
        else:
            errors.append(f"{name(task)}: {error!r}")
        display.finished(index, name(task))
    return results, errors


def _begin(stop: Any) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # PyTorch comes later; several of its threads in each of several processes would only be in each other's way.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that waits for tasks would outlive a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Display:
    """A bar by cost; plain lines where output is no terminal."""

    def __init__(self, costs: Sequence[float], console: Console) -> None:
        self._costs, self._console = costs, console
        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
        self.bars = Progress(*columns, console=console, transient=True)
        self._bar = self.bars.add_task("", total=sum(costs), note="")
        self._count, self._said = 0, 0.0

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow")

    def finished(self, index: int, name: str) -> None:
        self._count += 1
        note = f"{self._count} of {len(self._costs)}, {name}"
        self.bars.update(self._bar, advance=self._costs[index], note=note)
        share = self.bars.tasks[self._bar].percentage
        if not self._console.is_terminal and (share >= self._said + 10 or self._count == len(self._costs)):
            self._said = share
            self._console.print(f"[{share:3.0f} %] {note}", markup=False)
