"""What does it cost to save a buffer, to save it again after a hundredth more, and to load it?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer, Spec, Unsupported
from benchmarks.peers.saves import SavingPeer
from benchmarks.question import Found, Question, Scale, Setting, Target, count, own_ratio, ratio_to, times_faster
from benchmarks.workload import single_steps

MEMORY = Path("/dev/shm")
SECONDS = 5.0
MS, MB = 1e-3, 1e-6


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    common = {"capacity": n, "rounds": {"full": 9, "quick": 5}.get(scale.name, 2)}
    columns = [
        ("save", "save, ms", "µs", MS),
        ("save-bytes", "it writes, MB", "bytes", MB),
        ("again", "once more after 1 % is new, ms", "µs", MS),
        ("again-bytes", "that writes, MB", "bytes", MB),
        ("load", "load, ms", "µs", MS),
    ]
    return [
        Setting(key, label, {"what": key, **common}, 900 * n, table=f"{count(n)} transitions", unit=unit, scale=to)
        for key, label, unit, to in columns
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    if not isinstance(peer, SavingPeer):
        raise Unsupported("saves nothing")
    capacity, rounds = values["capacity"], values["rounds"]
    spec = Spec(capacity, prioritized=peer.prioritized)
    peer.ensure(spec, fill=capacity)
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        return Found(tuple(figures(peer, values["what"], folder, capacity // 100, rounds)))
    finally:
        shutil.rmtree(folder)


def figures(peer: SavingPeer, what: str, folder: Path, more: int, rounds: int) -> Iterator[float]:
    """Yield `rounds` figures, fewer if they are slow; bytes are those of a save that was timed."""
    if what in peer.written:
        yield peer.written[what]
        return
    begun = time.perf_counter()
    for number in range(rounds):
        if not number or time.perf_counter() - begun < SECONDS:
            yield measured(peer, what, folder, more)


def measured(peer: SavingPeer, what: str, folder: Path, more: int) -> float:
    """Measure the microseconds of one call, and note the bytes of a save."""
    if what == "save":
        clear(folder)
    else:
        if not any(folder.iterdir()):
            peer.save(folder / "buffer")
        if what != "load":
            peer.add(single_steps(more))
    start = time.perf_counter()
    kept = peer.load(folder / "buffer") if what == "load" else None
    written = None if what == "load" else peer.save(folder / "buffer")
    seconds = time.perf_counter() - start
    del kept
    peer.written[f"{what}-bytes"] = float(stored(folder) if written is None else written)
    return seconds * 1e6


def clear(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


QUESTION = Question(
    name="saves",
    title="Saving and loading",
    text="A full buffer is saved into an empty directory, once more after a hundredth of it is new, and loaded, each "
    "in the library's documented way: Stable-Baselines3 and Tianshou pickle the buffer, TorchRL writes memory maps "
    "(`dumps`), cpprb an `.npz` of the transitions alone. relive and Tianshou save their priorities; cpprb forgets "
    "them, Stable-Baselines3 has none, TorchRL's buffer is uniform here. relive alone writes checksums, syncs, and can "
    "be killed at any moment. Files lie in memory (`/dev/shm`, where there is one), so that a sync costs nothing and "
    "no disk is measured. The limit writes relive's bytes as they are, and reads them.",
    peers=("relive", "limit", "sb3", "tianshou", "torchrl-plain", "cpprb"),
    kind="saves",
    settings=settings,
    prepare=prepare,
    single=True,
    alone=True,
    unit="",
    targets=(
        Target("save over a plain copy of the bytes", ratio_to("limit", "save"), at_most=2),
        Target("load over reading the bytes", ratio_to("limit", "load"), at_most=1.5),
        Target("save: times the fastest library", times_faster("save"), at_least=1),
        Target("load: times the fastest library", times_faster("load"), at_least=1),
        Target("bytes of a further save over the first", own_ratio("again-bytes", "save-bytes"), at_most=0.13),
    ),
)
