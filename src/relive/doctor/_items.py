"""Table A: is every stored item the right target for its observation?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ._pipeline import GAMMA, PlainItem
from ._world import Place, Target, World

PHANTOM = "phantom step"
NO_STEP = "not a step of the environment"
AS_END = "truncation taken for an end"
NEXT_OBS = "wrong next_obs bootstrapped"
REWARD = "wrong reward"
ROUNDED = "rounded reward"
DISCOUNT = "wrong discount"
TERMINAL = "bootstraps from a terminal state"
MISSING = "step missing"
TWICE = "step stored twice"
IGNORED = "n ignored"
_LATE = 8
PROBES = (PHANTOM, AS_END, NEXT_OBS, REWARD, ROUNDED, DISCOUNT, TERMINAL, NO_STEP, MISSING, TWICE)

_RESETS = (
    "the call after an end only resets: leave its lanes out of what is stored, or step the environment through "
    "`relive.gymnasium.Recorder`"
)
REMEDIES = {
    PHANTOM: _RESETS,
    AS_END: "bootstrap unless `terminated`: store `terminated` and `truncated` apart, never `terminated | truncated`",
    NEXT_OBS: "store the final observation with the step that ends an episode (`final_obs` in infos or extras where "
    "lanes reset at once), and end n-step windows there",
    REWARD: "sum `gamma**k * r[t+k]` over the steps of one episode only, from the step where the item starts",
    ROUNDED: "store rewards as float32: integers have no fractions, int8 ends at 127, and half precision has 3 digits",
    DISCOUNT: "bootstrap with `gamma**m` for the m steps that the reward sums, fewer than n where the episode ends",
    TERMINAL: "discount 0 where any step of the window, the last one included, is `terminated`",
    NO_STEP: "draw only slots that were written; copy observations that the environment reuses, to a dtype that holds "
    "them",
    MISSING: "store every step, also the last one of an episode; flush shortened windows at its end",
    TWICE: "store every step once; a step that is stored twice is drawn twice as often",
}
# The value of an item that is wrong; `obs`: the item itself.
CELLS = {
    PHANTOM: "obs",
    AS_END: "discount",
    NEXT_OBS: "next_obs",
    REWARD: "reward",
    ROUNDED: "reward",
    DISCOUNT: "discount",
    TERMINAL: "discount",
    NO_STEP: "obs",
    MISSING: "obs",
    TWICE: "obs",
}


# How dtypes that are too small for rewards change them; numbers beyond int8 wrap, or stop at its ends.
_DTYPES: tuple[Callable[[float], float], ...] = (
    math.trunc,
    round,
    math.floor,
    lambda x: (math.trunc(x) + 128) % 256 - 128,
    lambda x: math.trunc(x) % 256,
    lambda x: min(math.trunc(x), 127),
    lambda x: min(math.trunc(x), 255),
    lambda x: _of_bits(x, 11),
    lambda x: _of_bits(x, 8),
)


def _of_bits(x: float, bits: int) -> float:
    """Round to so many binary digits: half precision has 11, bfloat16 8."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


class Fault(NamedTuple):
    """A fault of an item: the probe that it fails, the item in words, and its observation."""

    probe: str
    text: str
    obs: float


def judge(items: Sequence[PlainItem], world: World, n_step: int) -> list[Fault]:
    """List every fault of the items that a run has stored, the smallest observation first; an item may have several."""
    found = [(item, [*faults_of(item, world, n_step)]) for item in items]
    faults = [fault for _, those in found for fault in those]
    wrong = [item for item, those in found if any(fault.probe == REWARD for fault in those)]
    if any(all(_explains(cast, item, world, n_step) for item in wrong) for cast in _DTYPES):
        faults = [fault._replace(probe=ROUNDED) if fault.probe == REWARD else fault for fault in faults]
    known = (world.place(item.obs) for item in items if not _empty(item))
    places = [place for place in known if place and place.t < place.length]
    faults += [
        Fault(TWICE, f"obs {place.code}, {place}: {n} items start here", place.code)
        for place, n in Counter(places).items()
        if n > 1
    ]
    faults += [
        Fault(MISSING, f"obs {place.code}, {place}: no item starts here", place.code)
        for place in holes(places, world, n_step)
    ]
    return sorted(faults, key=lambda fault: (not math.isfinite(fault.obs), fault.obs, fault.text))


def faults_of(item: PlainItem, world: World, n_step: int) -> Iterator[Fault]:
    """Yield each fault of an item."""
    place = world.place(item.obs)
    if place is None:
        yield Fault(NO_STEP, f"obs {item.obs:g}, which the environment never returned: {item}", item.obs)
        return
    at = f"obs {item.obs:g}, {place}"
    if _empty(item):
        yield Fault(NO_STEP, f"zeros, as of an empty slot: {item}", item.obs)
        return
    if place.t == place.length:
        yield Fault(PHANTOM, f"{at}, yet a step starts at it: {item}", item.obs)
        return
    if place.t >= world.lived(place):
        yield Fault(NO_STEP, f"{at}, where no step was taken: {item}", item.obs)
        return
    targets = targets_of(place, world, n_step)
    wrong = [_differences(item, target) for target in targets]
    if all(wrong):
        text = f"{at}: {_in_words(item, targets[0], world)}"
        for probe in wrong[0]:
            yield Fault(probe, text, item.obs)


def _empty(item: PlainItem) -> bool:
    """Return whether it has nothing but zeros; no reward is 0."""
    return item.obs == item.reward == item.next_obs == 0


def _explains(cast: Callable[[float], float], item: PlainItem, world: World, n_step: int) -> bool:
    """Return whether rewards of a dtype, or sums of it, give the item's reward."""
    place = world.place(item.obs)
    if place is None:
        return False
    sums = list[float]()
    for target in targets_of(place, world, n_step):
        sums += [cast(target.reward), sum(GAMMA**k * cast(place.later(k).reward) for k in range(target.steps))]
    return any(abs(item.reward - each) < 1e-6 for each in sums)


def _in_words(item: PlainItem, right: Target, world: World) -> str:
    """Name each value of an item that is wrong, and the right one."""
    pairs = [(CELLS[probe], probe) for probe in _differences(item, right)]
    shown = []
    for name in ("reward", "discount", "next_obs"):
        if name not in dict(pairs):
            continue
        cell = "bootstrap" if name == "discount" else name
        got, wanted = getattr(item, cell), getattr(right, cell)
        place = world.place(got) if name == "next_obs" else None
        shown.append(f"{cell} {got:g}{f' ({place.brief})' if place else ''}, right: {wanted:g}")
    return "; ".join(shown)


def targets_of(place: Place, world: World, n_step: int) -> list[Target]:
    """List the right targets, the longest first: shorter windows are right only where the stream went no further."""
    rest = world.lived(place) - place.t
    longest = min(n_step, rest)
    open_end = rest < n_step and world.lived(place) < place.length
    return [world.target(place, steps, GAMMA) for steps in range(longest, 0 if open_end else longest - 1, -1)]


def _differences(item: PlainItem, target: Target) -> list[str]:
    found = []
    if not abs(item.reward - target.reward) < 1e-4 * max(1.0, abs(target.reward)):
        found.append(REWARD)
    if target.bootstrap == 0:
        return [*found, *([TERMINAL] if item.bootstrap != 0 else [])]
    if item.bootstrap == 0:
        return [*found, AS_END if target.truncated else DISCOUNT]
    if not abs(item.bootstrap - target.bootstrap) < 1e-4 * target.bootstrap:
        found.append(DISCOUNT)
    if item.next_obs != target.next_obs:
        found.append(NEXT_OBS)
    return found


def holes(places: Sequence[Place], world: World, n_step: int) -> list[Place]:
    """List the steps without an item, though older ones of their lane are stored and their window is complete."""
    known, holes = set(places), list[Place]()
    for lane in sorted({lane for lane, _ in world.taken}):
        lived = sorted((episode, steps) for (at, episode), steps in world.taken.items() if at == lane)
        taken = [Place(lane, episode, t, world.course) for episode, steps in lived for t in range(steps)]
        # The newest may wait for steps that never came, and so may those before a reset in mid-episode.
        waiting = {place for place in taken if place.length > world.lived(place) <= place.t + n_step}
        waiting |= set(taken[-n_step:])
        newest = max((place for place in places if place.lane == lane), default=None)
        late = [place for place in taken if newest and place > newest]
        waiting |= set(late) if len(late) <= _LATE else set()  # some add many steps at once
        oldest = min((place for place in places if place.lane == lane), default=taken[0])
        holes += [place for place in taken if place > oldest and place not in known | waiting]
        holes += [oldest] if oldest not in known | waiting else []
    return holes
