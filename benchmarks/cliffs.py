"""Which calls cost much more than their plain form: odd inputs, samplers, items, places?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from benchmarks import odd_calls as calls
from benchmarks import odd_places as places
from benchmarks.peers import Peer
from benchmarks.question import Answer, Found, Question, Scale, Setting, Target, own_figure, own_ratio
from benchmarks.turns import Pair, Size

ADDS, DRAWS, LANES = "Add one step", "Draw", "Many environments"
PLAIN, AFTER_ALL = "256, uniform", "draw after an add of all, an item that came"
ADAPTER = "add of 4, relive's class for Tianshou"
BY_PRIORITY, SEQUENCES, RAM = "256 by priority, and the update", "64 sequences of 16", "256 of `Ram()`"
SCALES = {"µs": 1.0, "ms": 1e-3, "ns": 1e3, "MB": 1e-6}
EXTRAS = tuple(f"extra_{i}" for i in range(60))


class Cliff(NamedTuple):
    """An odd form, the plain one, and how many times its cost is asked; without a plain one, how much in `unit`."""

    table: str
    odd: str
    plain: str
    build: Callable[[Any, Size], Pair]
    goal: float | None = None
    beyond: bool = False  # the goal is for the difference
    unit: str = "µs"
    needs: str = ""
    full: bool = False  # too long for a look


def across(relive: Any, size: Size, episode: int) -> Pair:
    common = {"episode": episode, "boundaries": 1.0}
    item = relive.Sequences(16, across_episodes=True)
    return calls.drawn(relive, size, 64, {"item": relive.Sequences(16), **common}, item=item, **common)


def sequences(relive: Any, size: Size, **options: Any) -> Pair:
    return calls.drawn(relive, size, 64, {"item": relive.Sequences(16)}, item=relive.Sequences(16, **options))


def over_episodes(relive: Any, size: Size) -> Pair:
    return calls.added_to(relive, size, sampler=relive.Uniform(over="episodes"))


def limited(relive: Any, size: Size) -> Pair:
    return calls.added_to(relive, size, limiter=relive.RateLimiter(1, 1, error_buffer=1e15))


def uniform(relive: Any, size: Size, **options: Any) -> Pair:
    return calls.drawn(relive, size, 256, sampler=relive.Uniform(**options))


def distinct(relive: Any, size: Size) -> Pair:
    return calls.cycled(relive, size, 256, relive.Prioritized(replacement=False))


def handed(odd: str, form: str, goal: float, **more: Any) -> Cliff:
    return Cliff(ADDS, odd, "arrays of the schema's dtypes", partial(calls.added, form=form), goal, **more)


def recorded(odd: str, lanes: int) -> Cliff:
    build = partial(places.recorder, lanes=lanes)
    return Cliff(ADDS, odd, "stepping and adding by hand", build, 1.5, beyond=True, needs="gymnasium")


def elsewhere(odd: str, plain: str, build: Callable[[Any, Size], Pair], goal: float | None, **more: Any) -> Cliff:
    return Cliff("Elsewhere", odd, plain, build, goal, **more)


CLIFFS = {
    "reward": handed("`reward` an int", "reward", 3),
    "flags": handed("flags 0 and 1", "flags", 3),
    "list": handed("`action` a list", "list", 3),
    "float64": handed("float64 observations", "float64", 3),
    "strided": handed("observations that are not contiguous", "strided", 3),
    "priority": handed("with `priority=`", "priority", 2),
    "tensors": handed("PyTorch tensors", "tensors", 5, needs="torch"),
    "episodes-add": Cliff(ADDS, '`Uniform(over="episodes")`', "`Uniform()`", over_episodes, 2),
    "limiter": Cliff(ADDS, "with a `RateLimiter`", "without", limited, 1.5),
    "recorder": recorded("a step through `Recorder`", 0),
    "recorder-8": recorded("a step of 8 through `Recorder`", 8),
    "distinct": Cliff(DRAWS, "256 without replacement", PLAIN, partial(uniform, replacement=False), 2),
    "episodes": Cliff(DRAWS, "256 over episodes", PLAIN, partial(uniform, over="episodes"), 2),
    "distinct-by-priority": Cliff(DRAWS, "256 without replacement, and the update", BY_PRIORITY, distinct, 2),
    "hindsight": Cliff(DRAWS, "256 of `Hindsight`", "256 of its item", partial(calls.hindsight, batch=256), 2.5),
    "hindsight-4096": Cliff(DRAWS, "4,096 of `Hindsight`", "of its item", partial(calls.hindsight, batch=4_096), 2.5),
    "mixture": Cliff(DRAWS, "256 of a `Mixture` of two", "256 of one", partial(calls.mixture, batch=256), 2.2),
    "mixture-4096": Cliff(DRAWS, "4,096 of a `Mixture` of two", "of one", partial(calls.mixture, batch=4_096), 2.2),
    "extras": Cliff(DRAWS, "256 with 60 more fields", PLAIN, partial(calls.drawn, batch=256, more=EXTRAS)),
    "jax": Cliff(DRAWS, "256, `.jax()`", "`jnp.asarray` by hand", calls.jax, 1.2, needs="jax"),
    "epoch": Cliff(DRAWS, "a batch of an epoch, `batches(256)`", PLAIN, calls.epoch, 1.6),
    "opening": Cliff(DRAWS, "`batches(256)` of 10^6, the first", "", calls.opening, 20, unit="ms"),
    "across": Cliff(DRAWS, f"{SEQUENCES}, across episodes", SEQUENCES, partial(across, episode=1_000), 1.5),
    "across-3": Cliff(DRAWS, "the same, episodes of 3 steps", SEQUENCES, partial(across, episode=3), 1.5),
    "time-major": Cliff(DRAWS, f"{SEQUENCES}, time first", SEQUENCES, partial(sequences, time_major=True)),
    "n-step": Cliff(DRAWS, f"{SEQUENCES}, n = 5", SEQUENCES, partial(sequences, n_step=5)),
    "stacked": Cliff(DRAWS, "16 sequences of 80 stacks of four", "of single frames", calls.stacked),
    "127": Cliff(LANES, "127 of 128, `env_ids=`", "all", calls.without_one, 2),
    "ending": Cliff(LANES, "add of 16,384, one ends", "none ends", calls.ending, 1.1),
    "cut": Cliff(LANES, "cut one of 16,384", "", calls.cut, 3),
    "length": Cliff(LANES, "`len` with 16,384", "with one", calls.length),
    "after-all": Cliff(LANES, AFTER_ALL, "after none", calls.after_all, 30, beyond=True, unit="ns"),
    "short-lanes": Cliff(LANES, "16,384 of 64 steps, memory", "of their steps", places.short_lanes, 1.3, unit="MB"),
    "shared": elsewhere("256 of `Shared()`", RAM, partial(places.stored, mapped=False), 1.5),
    "mapped": elsewhere("256 of `Mapped(path)`", RAM, partial(places.stored, mapped=True), 1.5),
    "late": elsewhere("a cycle, half a second late to 8 writers", "", places.late, 20, unit="ms", full=True),
    "stats": elsewhere("`stats()` of 10^6 priorities", "", calls.stats, 1, unit="ms"),
    "deepcopy": elsewhere("`copy.deepcopy`, memory", "bytes of the buffer", places.copied, 1.2, unit="MB"),
    "files": elsewhere("256 steps of files", "memory maps by hand", places.trajectories, 1.4, unit="ms", needs="torch"),
    "reads": elsewhere(
        "its reads and checksums", "memory maps by hand", places.reads_alone, None, unit="ms", needs="torch"
    ),
    "tianshou": elsewhere(ADAPTER, "Tianshou's own", places.tianshou, 1, needs="tianshou", full=True),
    "device": elsewhere("add of 64, `DeviceBuffer` on a CPU", "`ReplayBuffer`", places.on_device, None, needs="torch"),
}


def settings(scale: Scale) -> list[Setting]:
    size = Size(scale.capacity, scale.rounds // 3 or 1, scale.chunk)
    made = []
    for name, cliff in CLIFFS.items():
        if (cliff.needs and not find_spec(cliff.needs)) or (cliff.full and scale.name != "full"):
            continue
        plain = f"{name}-plain" if cliff.plain else ""
        values, to = {"cliff": name, "size": size}, SCALES[cliff.unit]
        common = {"table": cliff.table, "unit": cliff.unit, "scale": to}
        made.append(Setting(name, cliff.odd, values, 900 * size.n, fresh=cliff.unit == "MB", base=plain, **common))
        if plain:
            made.append(Setting(plain, cliff.plain, values, **common))
    return made


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    """Measure both forms, or say what the plain one's figures were."""
    name = values["cliff"]
    known: dict[str, Pair] = vars(peer).setdefault("cliffs", {})
    if name in known:
        return Found(known.pop(name).plain)
    pair = CLIFFS[name].build(peer.lib, Size(*values["size"]))
    if pair.plain:
        known[name] = pair
    return Found(pair.odd)


def beyond(key: str, base: str, scale: float) -> Callable[[Answer], float | None]:
    """Measure how much more an odd form takes."""

    def measure(answer: Answer) -> float | None:
        odd, plain = answer.figure("relive", key), answer.figure("relive", base)
        return None if odd is None or plain is None else (odd - plain) * scale

    return measure


def target(name: str, cliff: Cliff) -> Target:
    plain, scale = f"{name}-plain", SCALES[cliff.unit]
    if cliff.plain and not cliff.beyond:
        return Target(cliff.odd, own_ratio(name, plain), at_most=cliff.goal, key=name)
    measure = beyond(name, plain, scale) if cliff.beyond else own_figure(name, scale)
    return Target(cliff.odd, measure, at_most=cliff.goal, key=name, unit=cliff.unit)


QUESTION = Question(
    name="cliffs",
    title="Cliffs: odd forms and plain ones",
    text="Each odd form of a call and its plain form in turns in one process, by CPU time: medians. Steps of 17 + 6 "
    "numbers, full buffers of 10^6 or 10^5. A goal with a unit is for the difference, or for the odd form alone where "
    "there is no plain one.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=tuple(target(name, cliff) for name, cliff in CLIFFS.items() if cliff.goal),
    single=True,
    unit="",
)
