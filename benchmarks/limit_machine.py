"""What limits two threads, loads, imports and the size of the package: the interpreter and the machine."""

from __future__ import annotations

import ast
import atexit
import importlib
import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from benchmarks.harness import percentile
from benchmarks.import_time import CODE
from benchmarks.limit_cases import Case, Fact, Runs, made
from benchmarks.peers import Peer, Spec
from benchmarks.peers.saves import SavingPeer
from benchmarks.question import Run, Scale
from benchmarks.saves import MEMORY
from benchmarks.threads import every_core
from benchmarks.workload import td_errors

EMPTY = 40  # modules with nothing in them
THREAD_ROUNDS, LOADS = 7, 5
BATCHES = (256, 512, 1024, 4096)
Work = Callable[[], object]


def threads(scale: Scale) -> list[Fact]:
    """A thread of pure Python, which holds the interpreter's lock at all times, beside one that may not."""
    seconds, n = scale.rounds / 400, scale.capacity
    peer, block = made("relive", Spec(n, prioritized=True)), bytes(1 << 20)
    others: dict[str, Work] = {
        "loops of pure Python": spin,
        "checksums of 1 MB in C, without the interpreter's lock": partial(zlib.crc32, block),
        **{f"cycles of {batch:,}": turn(peer, batch) for batch in BATCHES},
    }
    times: dict[str, list[float]] = {label: [] for label in others}
    for _ in range(THREAD_ROUNDS if scale.rounds > 40 else 2):
        for label, work in others.items():
            times[label].append(gain(work, seconds))
    found = [Fact(f"pure Python beside {label}, x", f"{percentile(some, 0.5):.2f}") for label, some in times.items()]
    given = {label: turns_of_another(work, seconds) for label, work in others.items()}
    return found + [Fact(f"turns of another thread in {label}, a call", f"{some:.2f}") for label, some in given.items()]


def turn(peer: Peer, batch: int) -> Work:
    errors = cycle(td_errors(batch))
    return lambda: peer.cycle(batch, islice(errors, 1))


def spin() -> None:
    for _ in range(1000):
        pass


def beside(work: Work, other: Work, seconds: float) -> tuple[int, int, float]:
    """Do both for so long, each in a thread and on any core: how often each was done, and the seconds it took."""
    others, works, ended, begun = 0, 0, threading.Event(), threading.Barrier(2)

    def loop() -> None:
        nonlocal others
        begun.wait()
        while not ended.is_set():
            other()
            others += 1

    thread = threading.Thread(target=loop)
    with every_core():
        thread.start()
        begun.wait()
        before = time.perf_counter()
        while time.perf_counter() < before + seconds:
            work()
            works += 1
        ended.set()
        thread.join()
    return works, others, time.perf_counter() - before


def gain(work: Work, seconds: float) -> float:
    """Return the seconds of CPU that one thread takes for what two have done in a second."""
    works, spins, together = beside(work, spin, seconds)
    before = time.process_time()
    for _ in range(works):
        work()
    for _ in range(spins):
        spin()
    return (time.process_time() - before) / together


def turns_of_another(work: Work, seconds: float) -> float:
    """Return how often, in one call, another thread gets the interpreter because the call gives it up by itself."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is made to give it up; the other thread does at each turn
    try:
        works, turns, _ = beside(work, partial(time.sleep, 0), seconds)
    finally:
        sys.setswitchinterval(usual)
    return turns / works


def folder(inside: Path | None = None) -> Path:
    """Return a new folder, which is gone when this process ends."""
    path = Path(tempfile.mkdtemp(dir=inside))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def saved(scale: Scale) -> tuple[SavingPeer, Path, list[Path]]:
    """Return who loads it, where a full buffer was saved, and its files there."""
    peer = made("relive", Spec(scale.capacity, prioritized=True), "saves")
    if not isinstance(peer, SavingPeer):
        raise TypeError("saves nothing")
    path = folder(MEMORY if MEMORY.is_dir() else None) / "buffer"
    peer.save(path)
    return peer, path, [file for file in path.rglob("*") if file.is_file()]


def first_loads(scale: Scale) -> list[Fact]:
    """Everything is kept, so that each call gets memory from the system that this process never had."""
    peer, path, files = saved(scale)
    size = sum(file.stat().st_size for file in files)
    works: dict[str, Work] = {
        "relive": lambda: peer.load(path),
        "its files read": lambda: [file.read_bytes() for file in files],
        "as many bytes of a NumPy array, set to 1": lambda: np.full(size, 1, np.uint8),
    }
    times: dict[str, list[tuple[float, float]]] = {label: [] for label in works}
    kept: list[object] = []
    for _ in range(LOADS):
        for label, work in works.items():
            before = os.times()
            kept.append(work())
            after = os.times()
            times[label].append((after.user - before.user, after.system - before.system))
    return [
        Fact(f"{label}, ms of CPU: its own + the system's", f"{1e3 * user:.0f} + {1e3 * system:.0f}")
        for label, some in times.items()
        for user, system in [sorted(some, key=sum)[len(some) // 2]]
    ]


def loads(scale: Scale) -> Runs:
    peer, path, files = saved(scale)
    columns = [np.ones((scale.capacity, width), np.float32) for width in (17, 6, 1)]
    records = np.zeros((scale.capacity, 24), np.float32)

    def load(calls: int) -> None:
        for _ in range(calls):
            peer.load(path)

    def everywhere(calls: int) -> None:
        with every_core():
            load(calls)

    def read(calls: int) -> None:
        for _ in range(calls):
            [file.read_bytes() for file in files]

    def check(calls: int) -> None:
        whole = records.data.cast("B")
        for _ in range(calls):
            zlib.crc32(whole)

    def arrange(calls: int) -> None:
        for _ in range(calls):
            at = 0
            for column in columns:
                records[:, at : at + column.shape[1]] = column
                at += column.shape[1]

    return {
        "relive, one core": load,
        f"relive, {os.cpu_count()} cores": everywhere,
        "its files read": read,
        "`zlib`'s checksum of as many bytes": check,
        "NumPy: columns copied side by side into records of rows": arrange,
    }


def imports(scale: Scale) -> Runs:
    """Fresh processes, NumPy imported; nothing of the compiler in it, as for an installed package."""
    kept = folder()
    package = kept / "empty"
    package.mkdir()
    names = [f"m{k}" for k in range(EMPTY - 1)]
    (package / "__init__.py").write_text("".join(f"import empty.{name}\n" for name in names) + "Nothing = None\n")
    for name in names:
        (package / f"{name}.py").touch()
    paths = [str(kept), *(str(Path(entry).resolve()) for entry in sys.path if entry)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.update(PYTHONPYCACHEPREFIX=str(kept / "cache"), PYTHONPATH=os.pathsep.join(paths))

    def of(code: str) -> Run:
        def run(calls: int) -> tuple[float, float]:
            words = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=kept
            ).stdout.split()
            return float(words[0]) * calls, float(words[1]) * calls

        return run

    relive = CODE.format(numpy=", numpy", module="relive", name="ReplayBuffer")
    counted = "import sys, numpy\nbefore = set(sys.modules)\nimport relive\nrelive.ReplayBuffer\n"
    counted += "print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True, env=environment)
    own = [name for name in done.stdout.split() if name.startswith("relive")]
    return {
        f"relive: {len(own)} modules of its own, {len(done.stdout.split()) - len(own)} of Python's": of(relive),
        "their code read from its bytes (`marshal`), not run": unmarshalled(own),
        f"{EMPTY} modules with nothing in them": of(CODE.format(numpy=", numpy", module="empty", name="Nothing")),
    }


def unmarshalled(names: list[str]) -> Run:
    found = []
    for name in names:
        spec = importlib.util.find_spec(name)
        text = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
        found.append(marshal.dumps(compile(text, name, "exec", dont_inherit=True)))

    def run(calls: int) -> None:
        for _ in range(calls):
            for code in found:
                marshal.loads(code)

    return run


def size(scale: Scale) -> list[Fact]:
    """What is installed, without the lab, as files are."""
    root = Path(str(importlib.import_module("relive").__file__)).parent
    sizes: dict[str, int] = {}
    docstrings = 0
    for path in sorted(root.rglob("*")):
        part = path.relative_to(root).parts[0]
        if path.is_dir() or "__pycache__" in path.parts or part == "lab":
            continue
        nested = len(path.relative_to(root).parts) > 1
        label = (
            "the extension" if path.suffix in (".so", ".pyd") else f"`{part}/`" if nested else "modules beside these"
        )
        sizes[label] = sizes.get(label, 0) + path.stat().st_size
        if path.suffix == ".py":
            docstrings += described(path.read_text(encoding="utf-8"))
    total = sum(sizes.values())
    largest = sorted(sizes, key=lambda label: -sizes[label])[:8]
    return [
        Fact("all, MB", f"{total / 1e6:.2f}"),
        *(Fact(f"{label}, MB", f"{sizes[label] / 1e6:.2f}") for label in largest),
        Fact("the rest, MB", f"{(total - sum(sizes[label] for label in largest)) / 1e6:.2f}"),
        Fact("docstrings, in all of these, MB", f"{docstrings / 1e6:.2f}"),
    ]


def described(text: str) -> int:
    """Return the bytes of a module's docstrings."""
    found = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found += len((ast.get_docstring(node, clean=False) or "").encode())
    return found


CASES: dict[str, Case] = {"threads": threads, "load": loads, "load-new": first_loads, "import": imports, "size": size}
