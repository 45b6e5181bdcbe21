"""Table A: is every stored item the right target for its observation?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ._pipeline import GAMMA, PlainItem
from ._world import Place, Target, World

PHANTOM = "phantom step"
NO_STEP = "not a step of the environment"
AS_END = "truncation taken for an end"
NEXT_OBS = "wrong next_obs bootstrapped"
REWARD = "wrong reward"
DISCOUNT = "wrong discount"
TERMINAL = "bootstraps from a terminal state"
MISSING = "step missing"
TWICE = "step stored twice"
PROBES = (PHANTOM, AS_END, NEXT_OBS, REWARD, DISCOUNT, TERMINAL, NO_STEP, MISSING, TWICE)

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
    DISCOUNT: "bootstrap with `gamma**m` for the m steps that the reward sums, fewer than n where the episode ends",
    TERMINAL: "discount 0 where any step of the window, the last one included, is `terminated`",
    NO_STEP: "draw only slots that were written, and copy observations that the environment reuses",
    MISSING: "store every step, also the last one of an episode; flush shortened windows at its end",
    TWICE: "store every step once; a step that is stored twice is drawn twice as often",
}
# The value of an item that is wrong; `obs`: the item itself.
CELLS = {
    PHANTOM: "obs",
    AS_END: "discount",
    NEXT_OBS: "next_obs",
    REWARD: "reward",
    DISCOUNT: "discount",
    TERMINAL: "discount",
    NO_STEP: "obs",
    MISSING: "obs",
    TWICE: "obs",
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with an item: the probe that it fails, and the item in words."""

    probe: str
    text: str


def judge(items: Sequence[PlainItem], world: World, n_step: int) -> list[Fault]:
    """Every fault of the items that a run has stored; an item may have several."""
    faults = []
    for item in items:
        faults += [Fault(probe, text) for probe, text in faults_of(item, world, n_step)]
    places = [place for place in (world.place(item.obs) for item in items) if place and place.t < place.length]
    faults += [
        Fault(TWICE, f"obs {place.code} ({place}): {n} items start here")
        for place, n in Counter(places).items()
        if n > 1
    ]
    faults += [
        Fault(MISSING, f"obs {place.code} ({place}): no item starts here") for place in holes(places, world, n_step)
    ]
    return faults


def faults_of(item: PlainItem, world: World, n_step: int) -> Iterator[tuple[str, str]]:
    """Each fault of an item: the probe that it fails, and the item in words."""
    place = world.place(item.obs)
    if place is None:
        yield NO_STEP, f"obs {item.obs:g}, which the environment never returned: {item}"
        return
    if place.t == place.length:
        yield PHANTOM, f"obs {item.obs:g} is the final observation of {place}, yet a step starts at it: {item}"
        return
    if place.t >= world.lived(place):
        yield NO_STEP, f"obs {item.obs:g} ({place}), where no step was taken: {item}"
        return
    targets = targets_of(place, world, n_step)
    wrong = [_differences(item, target) for target in targets]
    if all(wrong):
        text = f"obs {item.obs:g} ({place}): {item}; right: {targets[0]}"
        for probe in wrong[0]:
            yield probe, text


def targets_of(place: Place, world: World, n_step: int) -> list[Target]:
    """The right targets, the longest first: shorter windows are right only where the stream went no further."""
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
    """Steps at which no item starts, though older ones of their lane are stored and a window from them is complete."""
    known, holes = set(places), list[Place]()
    for lane in sorted({lane for lane, _ in world.taken}):
        lived = sorted((episode, steps) for (at, episode), steps in world.taken.items() if at == lane)
        taken = [Place(lane, episode, t, world.course) for episode, steps in lived for t in range(steps)]
        # The newest may wait for steps that never came, and so may those before a reset in mid-episode.
        waiting = {place for place in taken if place.length > world.lived(place) <= place.t + n_step}
        waiting |= set(taken[-n_step:])
        oldest = min((place for place in places if place.lane == lane), default=taken[0])
        holes += [place for place in taken if place > oldest and place not in known | waiting]
        holes += [oldest] if oldest not in known | waiting else []
    return holes
