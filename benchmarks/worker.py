"""One peer in a process of its own, so that allocators, threads and imports of one do not touch another.

Reads one JSON object a line from standard input, answers one a line. Started by `benchmarks.harness`, which also sets
the variables that keep every library to one thread: they count only when set before the libraries are imported.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers import Peer, Unsupported, adapter
from benchmarks.question import Found, Question, Run


def pin(core: int) -> None:
    """Keep this process, and every thread it starts later, on one core where the system can do that."""
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def one_thread() -> None:
    """Tell PyTorch, if the adapter brought it in, to use one thread."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


class Session:
    """The peer, and the piece of work that is ready to be timed."""

    def __init__(self, question: Question, peer: Peer) -> None:
        self.question, self.peer = question, peer
        self.run: Run | None = None
        self.calls = 1

    def prepare(self, values: dict[str, Any], chunk: float, warm: float) -> dict[str, Any]:
        """Make the buffer, warm it up, and find how many calls fill a chunk; or say what was found already."""
        self.run = None
        gc.unfreeze()
        run = self.question.prepare(self.peer, values)
        if isinstance(run, Found):
            return {"found": run._asdict()}
        self.run = run
        one_thread()
        self.run(1)
        gc.collect()
        gc.freeze()  # the prepared steps are not the garbage collector's business during the timed calls
        calls, spent, begun = 1, 0.0, time.perf_counter()
        while True:
            spent = self._time(self.run, calls)[0]
            if spent >= chunk / 2 or calls >= self.question.max_calls:
                if time.perf_counter() - begun >= warm:
                    break
            else:
                calls *= 2
        self.calls = min(max(1, round(calls * chunk / max(spent, 1e-9))), self.question.max_calls)
        return {"calls": self.calls, "memory": self.peer.memory}

    def measure(self) -> dict[str, Any]:
        """Time one chunk, after a quarter of it untimed: the other peers had the caches in between."""
        run = self.run
        if run is None:
            raise RuntimeError("nothing is prepared")
        if self.calls > 1:
            run(max(1, self.calls // 4))
        if self.question.single:
            each = [self._time(run, 1) for _ in range(self.calls)]
            return {"wall": sum(w for w, _ in each), "cpu": sum(c for _, c in each), "each": [w for w, _ in each]}
        wall, cpu = self._time(run, self.calls)
        return {"wall": wall, "cpu": cpu, "each": []}

    @staticmethod
    def _time(run: Run, calls: int) -> tuple[float, float]:
        cpu, wall = time.process_time(), time.perf_counter()
        own = run(calls)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return (wall, cpu) if own is None else own


def attempt(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do a piece of work and put what went wrong into the answer: a peer's error costs its cell, not the run."""
    try:
        return work()
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def open_session(question: str, name: str) -> tuple[Session | None, dict[str, Any]]:
    """Import the peer; without it there is no session but a reason."""
    asked = importlib.import_module(f"benchmarks.{question}").QUESTION
    if not asked.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before any library is imported
    try:
        peer = adapter(name, asked.kind)()
    except ImportError as error:
        return None, {"missing": str(error).splitlines()[0][:200]}
    except Exception as error:
        return None, {"missing": f"{type(error).__name__}: {str(error)[:200]}"}
    facts = attempt(lambda: {"version": peer.version()})
    return Session(asked, peer), {"version": facts.get("version", "?"), "output": peer.output}


def serve(question: str, name: str, core: int) -> None:
    """Answer until the end of input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    warnings.simplefilter("ignore")
    pin(core)
    session, hello = open_session(question, name)
    answers.write(json.dumps(hello) + "\n")
    if session is None:
        return
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(attempt(partial(getattr(session, order.pop("do")), **order))) + "\n")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
