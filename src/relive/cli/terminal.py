"""What commands share, also those of other packages: output, progress bars, signals, and exit statuses."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

T = TypeVar("T")
INTERRUPTED = 130  # Ctrl-C, or SIGTERM, by which clusters announce the end
READER_GONE = 141  # the process that read the output has ended, as `head` does


class Stopped(Exception):
    """Ctrl-C between two files."""


def console() -> Console:
    """Return a console that raises BrokenPipeError once its output is closed; Rich would exit with status 1."""
    from rich.console import Console

    class Raising(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Raising()


def say(to: Console, text: str) -> None:
    """Print one line as it stands: no markup, no colors, no line breaks added."""
    to.print(text, markup=False, highlight=False, soft_wrap=True)


def say_files(to: Console, paths: Iterable[Path]) -> None:
    """Name the files that a command wrote."""
    for path in paths:
        say(to, f"wrote {path}")


def columns(rows: Sequence[Sequence[str]], sides: str) -> str:
    """Align cells in columns as wide as their widest one, on the left or on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def progress(to: Console, label: str, *, note: bool = False, transient: bool = True) -> Progress:
    """Return a progress display: label, bar, count, remaining time, and with `note` the task's field `note`."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    columns += [TextColumn("{task.fields[note]}")] if note else []
    return Progress(*columns, console=to, transient=transient)


def watched(to: Console, label: str, work: Callable[[Callable[[int, int], None]], T]) -> tuple[T | None, int]:
    """Call `work` with a function that reports its progress to a bar.

    Returns:
        Its result, or None after Ctrl-C, and the count that it reported last.
    """
    done = 0
    try:
        with interruptible() as stop, progress(to, label) as bars:
            task = bars.add_task("", total=None)

            def report(count: int, total: int) -> None:
                nonlocal done
                done = count
                bars.update(task, completed=count, total=total)
                if stop.is_set():
                    raise Stopped

            return work(report), done
    except Stopped:
        return None, done


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second one raises KeyboardInterrupt.

    Outside the main thread, which receives the signals, the event stays unset.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with _on(signal.SIGINT, on_signal), _on(signal.SIGTERM, on_signal):
        yield stop


@contextlib.contextmanager
def _on(number: signal.Signals, handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
