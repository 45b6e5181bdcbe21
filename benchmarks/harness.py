"""Run one question over all its peers: a worker process each, short chunks in turn, low percentiles."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.question import Answer, Cell, Found, Question, Row, Scale, Setting

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
ENOUGH = 12  # undisturbed chunks; where there are fewer, rounds are added, then all chunks count
Progress = Callable[[str], None]


class Chunk(NamedTuple):
    """Seconds that a chunk of calls took; `each` has every call's wall time where single calls are timed."""

    wall: float
    cpu: float
    each: tuple[float, ...] = ()


class WorkerDied(Exception):
    """The process of a peer ended by itself; usually it was killed for its memory."""


class Worker:
    """The parent's end of one peer's process."""

    def __init__(self, question: str, peer: str, core: int) -> None:
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        self.core = core
        # What a peer leaves on disk goes with its process, however that ends.
        self.scratch = tempfile.TemporaryDirectory(prefix="relive-bench-", ignore_cleanup_errors=True)
        environment = {
            **os.environ,
            **ONE_THREAD,
            "TMPDIR": self.scratch.name,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", question, peer, str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.hello = self._answer()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Send one order and wait for its answer."""
        pipe = self.process.stdin
        if pipe is None:
            raise WorkerDied
        try:
            pipe.write(json.dumps({"do": what, **arguments}) + "\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise WorkerDied(f"exit status {self.process.wait()}") from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise WorkerDied(f"exit status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.scratch.cleanup()


def idlest_core(watch: float = 0.3) -> int:
    """Return the core that idles most of those this process may use, watched for some seconds; -1: cannot pin."""
    if not hasattr(os, "sched_getaffinity"):
        return -1
    allowed = sorted(os.sched_getaffinity(0))
    before = _idle_ticks()
    time.sleep(watch if len(allowed) > 1 and before else 0)
    after = _idle_ticks()
    return max(allowed, key=lambda core: (after.get(core, 0) - before.get(core, 0), core))


def _idle_ticks() -> dict[int, int]:
    found = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                found[int(name[3:])] = int(ticks[3])
    return found


def available_bytes() -> int | None:
    """Return the memory the system can still give, where it says so."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return None


def percentile(values: list[float], q: float) -> float:
    """Return the q-th percentile (0 to 1), the lower of two neighbours."""
    return sorted(values)[int(q * (len(values) - 1))]


def run_question(
    question: Question,
    scale: Scale,
    peers: Iterable[str] | None = None,
    core: int | None = None,
    progress: Progress = lambda _: None,
) -> Answer:
    """Measure every setting of a question for every peer that can be imported.

    Interrupted by Ctrl-C it raises `Interrupted`, which carries what was reached.
    """
    chosen = [p for p in question.peers if peers is None or p in peers]
    answer = Answer(question, scale, question.settings(scale), {p: Row() for p in chosen})
    workers: dict[str, Worker] = {}
    core = idlest_core() if core is None else core
    try:
        for group in [[name] for name in chosen] if question.alone else [chosen]:
            for name in group:
                progress(f"{question.name}: starting {name}")
                start(answer, workers, name, core)
            for setting in answer.settings:
                run_setting(answer, workers, setting, progress)
            while question.alone and workers:
                workers.popitem()[1].stop()
    except KeyboardInterrupt:
        raise Interrupted(answer) from None
    finally:
        for worker in workers.values():
            worker.stop()
    return answer


class Interrupted(Exception):
    """Ctrl-C during a question; `answer` is what was measured until then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("interrupted")
        self.answer = answer


def start(answer: Answer, workers: dict[str, Worker], name: str, core: int) -> None:
    """Start a peer's process, or note why there is none."""
    row = answer.rows[name]
    try:
        worker = Worker(answer.question.name, name, core)
    except WorkerDied as error:
        row.missing = f"its process ended ({error})"
        return
    if "missing" in worker.hello:
        row.missing = worker.hello["missing"]
        worker.stop()
        return
    row.version, row.output = worker.hello["version"], worker.hello["output"]
    workers[name] = worker


def run_setting(answer: Answer, workers: dict[str, Worker], setting: Setting, progress: Progress) -> None:
    """Prepare every peer, then let them run chunk by chunk in turn, so that drift of the machine hits all alike."""
    scale = answer.scale
    if setting.fresh:
        for name in list(workers):
            old = workers.pop(name)
            old.stop()
            start(answer, workers, name, old.core)
            row = answer.rows[name]
            if row.missing:  # it has run before: what it lacks is this cell
                row.notes[setting.key], row.missing = row.missing, ""
    free = available_bytes()
    if free is not None and setting.nbytes * len(workers) > free:
        for row in answer.rows.values():
            row.notes[setting.key] = "not enough memory for all peers at once"
        return
    where = ", ".join(part for part in (answer.question.name, setting.table.lower(), setting.label) if part)
    ready: list[str] = []
    calls: dict[str, int] = {}
    rounds = min(scale.rounds, answer.question.max_rounds)
    enough = min(ENOUGH, (rounds + 1) // 2)
    for name in list(workers):
        progress(f"{where}: preparing {name}")
        reply = ask(
            answer, workers, name, setting.key, "prepare", values=setting.values, chunk=scale.chunk, warm=scale.warm
        )
        if reply is not None and "found" in reply:
            answer.rows[name].cells[setting.key] = cell_of(Found(**reply["found"]), enough)
        elif reply is not None:
            ready.append(name)
            calls[name] = reply["calls"]
            if setting.key == answer.question.memory:
                answer.rows[name].memory = reply["memory"]
    chunks: dict[str, list[Chunk]] = {name: [] for name in ready}
    for turn in range(2 * rounds if ready else 0):
        if turn >= rounds and all(len(undisturbed(c)) >= enough for c in chunks.values()):
            break
        progress(f"{where}: round {turn + 1} of {rounds}")
        shift = turn % max(1, len(ready))  # nobody always runs after the same neighbour
        for name in ready[shift:] + ready[:shift]:
            reply = ask(answer, workers, name, setting.key, "measure") if name in workers else None
            if reply is not None:
                chunks[name].append(Chunk(reply["wall"], reply["cpu"], tuple(reply["each"])))
    for name, measured in chunks.items():
        if measured and setting.key not in answer.rows[name].notes:
            answer.rows[name].cells[setting.key] = summarize(measured, calls[name], enough)


def ask(
    answer: Answer, workers: dict[str, Worker], name: str, key: str, what: str, **arguments: Any
) -> dict[str, Any] | None:
    """Ask a worker; an error or a dead process becomes a note of that peer, and the others go on."""
    row = answer.rows[name]
    try:
        reply = workers[name].ask(what, **arguments)
    except WorkerDied as error:
        row.notes[key] = f"its process ended ({error})"
        workers.pop(name).stop()
        return None
    if "unsupported" in reply or "error" in reply:
        row.notes[key] = reply.get("unsupported") or reply["error"]
        return None
    return reply


def undisturbed(measured: list[Chunk]) -> list[Chunk]:
    """Return the chunks during which no other process had the core: CPU time is nearly all of the wall time."""
    return [chunk for chunk in measured if chunk.cpu >= 0.95 * chunk.wall]


def summarize(measured: list[Chunk], calls: int, enough: int = ENOUGH) -> Cell:
    """Turn the seconds of chunks into microseconds a call, from the undisturbed ones if there are enough."""
    clean = undisturbed(measured)
    if len(clean) >= enough:
        measured = clean
    single = [seconds * 1e6 for chunk in measured for seconds in chunk.each]
    wall = single or [chunk.wall / calls * 1e6 for chunk in measured]
    busy = sum(chunk.cpu for chunk in measured) / max(sum(chunk.wall for chunk in measured), 1e-12)
    return cell(wall, busy, len(measured), calls, tail=bool(single))


def cell_of(found: Found, enough: int = ENOUGH) -> Cell:
    """Turn what a piece of work found by itself into a cell, from the undisturbed calls if there are enough."""
    pairs = list(zip(found.values, found.cpu or found.values, strict=True))
    clean = [pair for pair in pairs if pair[1] >= 0.95 * pair[0]]
    pairs = clean if len(clean) >= enough else pairs
    values = [wall for wall, _ in pairs]
    busy = sum(cpu for _, cpu in pairs) / max(sum(values), 1e-12) if found.cpu else 1.0
    return cell(values, busy, 1, len(values), tail=True)


def cell(values: list[float], busy: float, chunks: int, calls: int, *, tail: bool) -> Cell:
    """Make a cell of microseconds a call; `tail`: of single calls."""
    middle, p99 = statistics.median(values), percentile(values, 0.99) if tail else None
    return Cell(percentile(values, 0.2), middle, chunks, calls, round(busy, 3), p99)
