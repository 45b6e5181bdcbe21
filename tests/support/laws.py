"""The laws of samplers, item by item from lists of ids: slow, and of nothing but their definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

import relive

Lanes = list[list[int]]  # of every lane the ids that can be drawn, oldest first


def lanes_of(buffer: relive.ReplayBuffer) -> Lanes:
    """List the drawable ids of a buffer by lane, found without its sampler."""
    lanes: Lanes = [[] for _ in range(buffer.num_envs)]
    for key in sorted(buffer.ids().tolist()):
        lanes[key % buffer.num_envs].append(key)
    return lanes


def law(sampler: object, lanes: Lanes, priorities: Mapping[int, float]) -> dict[int, float]:
    """Return the probability of every id; `priorities`: the raw ones."""
    match sampler:
        case relive.Uniform():
            return dict.fromkeys(chain(*lanes), 1 / sum(map(len, lanes)))
        case relive.Prioritized():
            return normalised({key: raw**sampler.alpha if raw > 0 else 0.0 for key, raw in priorities.items()})
        case relive.Recent():
            q = ratio(sampler, max(map(len, lanes)))
            return normalised({key: q**age for lane in lanes for age, key in enumerate(reversed(lane))})
        case relive.Blend():
            able = [each for each in sampler.members if not isinstance(each[0], relive.Once)]
            total = sum(share for _, share in able)
            parts = [(law(member, lanes, priorities), share / total) for member, share in able]
            return {key: sum(share * part[key] for part, share in parts) for key in chain(*lanes)}
    raise NotImplementedError(sampler)


def ratio(sampler: relive.Recent, longest: int) -> float:
    """Return q; for a share by bisection."""
    if sampler.mean_age is not None:
        return sampler.mean_age / (1 + sampler.mean_age)
    low, high = 1e-9, 1e9
    for _ in range(200):
        x = math.sqrt(low * high)
        mean = 1 / x - (1 / math.expm1(x) if x < 700 else 0.0)
        low, high = (x, high) if mean > sampler.share else (low, x)
    return math.exp(-low / longest)


def normalised(masses: dict[int, float]) -> dict[int, float]:
    total = math.fsum(masses.values())
    return {key: mass / total for key, mass in masses.items()}


class Queue:
    """What `Once` draws, from a list of the items that wait."""

    def __init__(self, uses: int, order: str) -> None:
        self.uses, self.newest, self.left, self.unused = uses, order == "newest", dict[int, int](), 0
        self.drawn = dict[int, int]()

    def take_in(self, drawable: list[int]) -> None:
        """Note which items can be drawn now."""
        self.unused += sum(key not in set(drawable) for key in self.left)
        known = {key: self.left.get(key, self.uses - self.drawn.get(key, 0)) for key in drawable}
        self.left = {key: count for key, count in known.items() if count}

    def draw(self, n: int) -> list[int]:
        """Return the next ids."""
        keys = sorted(self.left, reverse=self.newest)[:n]
        for key in keys:
            self.left[key] -= 1
            self.drawn[key] = self.drawn.get(key, 0) + 1
        self.left = {key: count for key, count in self.left.items() if count}
        return keys
