"""What does it cost to keep rollouts in files, many more than fit in memory, and to draw single steps of them?"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer, Unsupported
from benchmarks.peers.base import grown, high_water, resident
from benchmarks.peers.trajectories import TrajectoryPeer
from benchmarks.question import Found, Question, Scale, Setting, Target, own_figure, own_ratio, ratio_to, times_faster
from benchmarks.workload import rollouts

DRAW = 256
PACE = 16  # rollouts that are added in a row, before their writing is waited for
POOL = 4  # different ones
LONG: dict[str, Any] = {"length": 100, "width": 8, "side": 64, "state": 32}
SMALL: dict[str, Any] = {"length": 4, "width": 2, "side": 2, "state": 2}
NEAR = 100  # adds that are timed around the 100th, and the 10,000th
SECONDS, MOST = 10.0, 200  # of draws: until the time is over, but five at least, and not more than this
MS, S, MB = 1e-3, 1e-6, 1e-6  # from microseconds, and from bytes


def settings(scale: Scale) -> list[Setting]:
    n, shape, far = {"full": (500, LONG, 10_000), "quick": (100, LONG, 1_000)}.get(scale.name, (20, SMALL, 200))
    cached, near, tiny = n // 10, NEAR if far > 2 * NEAR else far // 4, scale.name == "tiny"
    common: dict[str, Any] = {"n": n, "cached": cached, "near": near, "seconds": 0.0 if tiny else SECONDS, **shape}

    def column(key: str, label: str, table: str, to: float, unit: str = "µs", **values: Any) -> Setting:
        return Setting(key, label, {"what": key, **common, **values}, table=table, unit=unit, scale=to)

    adding, drawing = f"Adding {n} trajectories", f"Drawing {DRAW} steps"
    keeping, long = "Memory and checkpoints", "Adding small trajectories: does it grow with what is there?"
    return [
        column("add", "one add blocks, ms", adding, MS),
        column("written", "all written, s", adding, S),
        column("durable", "and synced, s", adding, S),
        column("disk", "on disk, MB", adding, MB, "bytes"),
        column("draw-all", f"of {n}, cache of {cached}, ms", drawing, MS),
        column("read", "bytes read a byte returned", drawing, 1.0, "ratio"),
        column("peak", "memory at a draw, MB", drawing, MB, "bytes"),
        column("draw-cold", f"of {n}, nothing in the page cache, ms", drawing, MS),
        column("draw-cached", f"of the newest {cached}, all in the cache, ms", drawing, MS),
        column("memory", f"process with a cache of {cached}, MB", keeping, MB, "bytes"),
        column("save-first", "first checkpoint, s", keeping, S),
        column("save-next", f"the next, {max(1, n // 100)} more, s", keeping, S),
        *(
            column(f"{what}-{name}", f"{at:,}th: {label}, ms", long, MS, at=at, **SMALL)
            for at, name in ((near, "near"), (far, "far"))
            for what, label in (("blocks", "blocks"), ("writes", "until written"))
        ),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    if not isinstance(peer, TrajectoryPeer):
        raise Unsupported("keeps no trajectories")
    return MEASURES[values["what"].partition("-")[0]](peer, values)


class Store:
    """A peer's files, and what was found while they were made."""

    def __init__(self, peer: TrajectoryPeer, values: Mapping[str, Any]) -> None:
        pool = rollouts(POOL, *(values[name] for name in ("length", "width", "side", "state")))
        needed = 2 * values["n"] * nbytes(pool[0])  # one that keeps all that it is given, and its checkpoint
        if shutil.disk_usage(tempfile.gettempdir()).free < 1.1 * needed:
            raise Unsupported(f"{needed / 1e9:,.0f} GB of disk are needed")
        self.peer, self.folder = peer, Path(tempfile.mkdtemp())
        self.rollouts = [peer.rollout(fields) for fields in pool]
        self.added = 0
        self.seconds: dict[str, float] = {}
        self.memory = resident() or 0
        peer.open(self.folder / "store", values["cached"])

    def add(self) -> float:
        """Add the next rollout; returns for how long that held its caller up."""
        one = [self.rollouts[self.added % POOL]]
        self.added += 1
        start = time.perf_counter()
        self.peer.store(one)
        return time.perf_counter() - start

    def fill(self, until: int) -> None:
        """Add rollouts in one call until there are so many, and wait for their writing."""
        self.peer.store([self.rollouts[i % POOL] for i in range(self.added, until)])
        self.added = until
        self.peer.wait()

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def drop(self) -> None:
        self.peer.close()
        self.peer.drop()
        shutil.rmtree(self.folder)


def begin(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Store:
    """Let go of the peer's files, and begin with an empty directory."""
    if peer.kept is not None:
        peer.kept.drop()
        peer.kept = None
    peer.kept = store = Store(peer, values)
    return store


def kept(peer: TrajectoryPeer) -> Store:
    """Return the files that an earlier setting made."""
    if not isinstance(peer.kept, Store):
        raise Unsupported("its files could not be made")
    return peer.kept


def add(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Fill the store; how long each add held its caller up."""
    store = begin(peer, values)
    blocked = []
    begun = time.perf_counter()
    for _ in range(values["n"]):
        blocked.append(store.add())
        if store.added % PACE == 0:
            peer.wait()
    peer.wait()
    store.seconds["written"] = time.perf_counter() - begun
    for path in store.files():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    store.seconds["durable"] = time.perf_counter() - begun
    return microseconds(blocked)


def known(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    return microseconds([kept(peer).seconds[values["what"]]])


def disk(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    return Found((float(sum(path.stat().st_blocks * 512 for path in kept(peer).files())),))


def draw(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    files = kept(peer).files()
    peer.window(values["cached"] if values["what"] == "draw-cached" else 0)
    cold = values["what"] == "draw-cold"
    peer.draw(DRAW)
    wall: list[float] = []
    cpu: list[float] = []
    until = time.perf_counter() + values["seconds"]
    while len(wall) < 5 or (time.perf_counter() < until and len(wall) < MOST):
        if cold:
            forget(files)
        busy, start = time.process_time(), time.perf_counter()
        peer.draw(DRAW)
        wall.append((time.perf_counter() - start) * 1e6)
        cpu.append((time.process_time() - busy) * 1e6)
    return Found(tuple(wall), () if cold else tuple(cpu))


def read(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Measure the bytes that the process asked the system for, per byte that it returned."""
    kept(peer)
    if peer.mapped:
        raise Unsupported("what is read through mappings is not counted")
    found = []
    for _ in range(5):
        before = bytes_read()
        returned = nbytes(peer.draw(DRAW))
        found.append((bytes_read() - before) / returned)
    return Found(tuple(found))


def peak(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Measure how much the process grows in the worst moment of a draw, its batch included."""
    kept(peer)
    found = []
    for _ in range(5):
        gc.collect()
        before = high_water(anew=True)
        peer.draw(DRAW)
        found.append(max(float(high_water() - before), 4096.0))  # memory comes in pages
    return Found(tuple(found))


def memory(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    before = kept(peer).memory
    gc.collect()
    return Found((grown(before),))


def save(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Time a checkpoint of everything; the second one after a hundredth more was added."""
    store = kept(peer)
    peer.window(0)
    if values["what"] == "save-next":
        store.fill(store.added + max(1, values["n"] // 100))
    peer.draw(DRAW)  # some save the trajectories that the last draw was from
    start = time.perf_counter()
    peer.checkpoint(store.folder / "checkpoint")
    return microseconds([time.perf_counter() - start])


def grow(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Time a number of single adds, the middle one being the `at`-th; those before them are added in one call."""
    near, at = values["near"], values["at"]
    store = begin(peer, {**values, "n": 0}) if at == near else kept(peer)
    store.fill(at - near // 2)
    begun = time.perf_counter()
    blocked = [store.add() for _ in range(near)]
    peer.wait()
    store.seconds[f"writes-{at}"] = (time.perf_counter() - begun) / near
    return microseconds(blocked)


def written(peer: TrajectoryPeer, values: Mapping[str, Any]) -> Found:
    """Time the same adds, until they were written: on average."""
    return microseconds([kept(peer).seconds[f"writes-{values['at']}"]])


MEASURES: dict[str, Callable[[TrajectoryPeer, Mapping[str, Any]], Found]] = {
    "add": add,
    "written": known,
    "durable": known,
    "disk": disk,
    "draw": draw,
    "read": read,
    "peak": peak,
    "memory": memory,
    "save": save,
    "blocks": grow,
    "writes": written,
}


def microseconds(seconds: list[float]) -> Found:
    return Found(tuple(value * 1e6 for value in seconds))


def nbytes(fields: Any) -> int:
    """Return the bytes of nested mappings of arrays or tensors."""
    if isinstance(fields, Mapping):
        return sum(nbytes(value) for value in fields.values())
    return int(getattr(fields, "nbytes", 0))


def bytes_read() -> int:
    """Return the bytes that this process has read so far, from files or the page cache."""
    try:
        return int(Path("/proc/self/io").read_text().split()[1])
    except OSError as error:
        raise Unsupported("the system does not say") from error


def forget(files: list[Path]) -> None:
    """Drop the files' pages from the system's cache, so that they come from the device again."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


QUESTION = Question(
    name="trajectories",
    title="Trajectories in files",
    text="Trajectories of 100 steps in 8 environments (image 3 x 64 x 64 uint8, state 32 x float32, the same one step "
    "later, action 7 x float32, reward, three flags), 20 MB each as they are given, in files; a tenth of them fit in "
    "the cache. Adds come 16 in a row, then their writing is waited for. A draw returns 256 steps as PyTorch tensors, "
    "6.4 MB; the files are in the page cache, but for one column. relive and the `torch.save` baseline store what the "
    "next observations repeat once; the baseline's caller sees to that by hand, and has a thread write. Only relive "
    "syncs what it writes; in the column `synced` that is done for the others. Libraries run one after the other: "
    "their files have no room side by side. `--quick` takes 100 trajectories.",
    peers=("relive", "rlinf", "torchsave"),
    kind="trajectories",
    single=True,
    alone=True,
    unit="",
    settings=settings,
    prepare=prepare,
    targets=(
        Target("add: blocks its caller, ms", own_figure("add", MS), at_most=2),
        Target("bytes on disk over RLinf's", ratio_to("rlinf", "disk"), at_most=0.51),
        Target("store ten times the cache: times RLinf", times_faster("draw-all", than="rlinf"), at_least=100),
        Target("all in the cache: times RLinf", times_faster("draw-cached", than="rlinf"), at_least=4),
        Target("bytes read a byte returned", own_figure("read", 1.0), at_most=2),
        Target("small adds: blocked, last over first", own_ratio("blocks-far", "blocks-near"), at_most=1.5),
        Target("small adds: until written, last over first", own_ratio("writes-far", "writes-near"), at_most=1.5),
    ),
)
