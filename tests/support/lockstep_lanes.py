"""Lanes that step in one call, and what a device buffer has to draw from them: lists of steps, walked one by one."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import relive


@dataclass
class Rec:
    """A step as its lane saw it."""

    call: int
    obs: dict
    action: np.ndarray
    reward: float
    extra: int
    state: np.ndarray
    terminated: bool
    truncated: bool
    after: dict  # its true successor
    known: bool = True  # whether that was given
    cut: bool = False
    stream: list = field(default_factory=list, repr=False)


class Lanes:
    """Simulators: numbers for observations, no two alike, so that a wrong one is seen at once."""

    def __init__(self, lanes: int, stack: int, pads: str) -> None:
        self.count, self.stack, self.pads = 1, stack, pads
        self.seen = [self.begin() for _ in range(lanes)]

    def number(self) -> int:
        self.count += 1
        return self.count

    def begin(self) -> list[int]:
        first = self.number()
        return [first if self.pads == "first" else 0] * (self.stack - 1) + [first]

    def on(self, frames: list[int]) -> list[int]:
        return [*frames[1:], self.number()]

    def show(self, frames: list[int]) -> dict:
        n = frames[-1]
        return {
            "stacked": np.array([[f % 251, f // 251] for f in frames], np.int32),
            "plain": np.array([n, n * 0.5], np.float32),
        }


def schema(stack: int, pads: str, every: int) -> relive.Schema:
    frame = relive.Field(2, "int32", stack=stack, pad=pads) if stack > 1 else relive.Field((1, 2), "int32")
    more = {"state": relive.Field((2,), every=every)} if every > 1 else {"state": relive.Field((2,))}
    return relive.Schema(
        obs={"stacked": frame, "plain": relive.Field(2)},
        action=relive.Field(3),
        extra=relive.Field((), "int64", writable=True),
        **more,
    )


class Oracle:
    """What a buffer of these lanes has to hold."""

    def __init__(self, lanes: int, steps: int, span: int, starts: int, finals: int) -> None:
        self.lanes, self.steps, self.span, self.starts, self.kept = lanes, steps, span, starts, finals
        self.head = self.cleared = 0
        self.recs: list[dict[int, Rec]] = [{} for _ in range(lanes)]
        self.open: list[list[Rec] | None] = [None] * lanes
        self.finals: list[int] = []  # calls of the finals that were kept, in order
        self.floor = 0

    def keep(self, call: int) -> None:
        """A final more; where it takes the room of an older one, nothing starts at that call or before."""
        self.finals.append(call)
        if len(self.finals) > self.kept:
            self.floor = max(self.floor, self.finals[-1 - self.kept] + 1)

    def first(self) -> int:
        return max(self.head - self.steps, self.cleared, self.floor)

    def close(self, lane: int, cut: bool) -> None:
        stream = self.open[lane]
        if stream is not None and cut:
            stream[-1].cut = True
            self.keep(stream[-1].call)
        self.open[lane] = None

    def add(self, lane: int, rec: Rec) -> None:
        if self.open[lane] is None:
            self.open[lane] = []
        self.open[lane].append(rec)
        rec.stream = self.open[lane]
        self.recs[lane][rec.call] = rec
        if rec.terminated or rec.truncated:
            if rec.known:
                self.keep(rec.call)
            self.open[lane] = None

    def items(self) -> list[int]:
        first = self.first()
        calls = [c for c in range(first, self.head - self.span + 1) if c % self.starts == 0]
        return [c * self.lanes + lane for c in calls for lane in range(self.lanes) if c in self.recs[lane]]

    def stored(self) -> int:
        return sum(c in recs for recs in self.recs for c in range(self.first(), self.head))

    def window(self, lane: int, call: int, n: int) -> list[Rec]:
        stream = self.recs[lane][call].stream
        at = next(i for i, rec in enumerate(stream) if rec.call == call)
        return stream[at : at + n]


def expected_transition(oracle: Oracle, item: relive.Transitions, i: int) -> dict[str, Any]:
    """Return the transition of the step `i`; `_unknown` tells if its final observation is."""
    call, lane = divmod(i, oracle.lanes)
    window = oracle.window(lane, call, item.n_step)
    first, last, m = window[0], window[-1], len(window)
    unknown = (last.terminated or last.truncated or last.cut) and not last.known
    after = None if unknown else last.after  # a step's own observation stands there, with a discount of 0
    dead = last.terminated or unknown
    out = {
        "obs": first.obs, "next_obs": after, "extra": first.extra, "state": first.state, "steps": m,
        "reward": sum(item.gamma**k * rec.reward for k, rec in enumerate(window)),
        "discount": 0.0 if dead else item.gamma**m, "terminated": last.terminated, "truncated": last.truncated,
        "action": first.action, "ids": i, "weights": 1.0, "_unknown": unknown,
    }  # fmt: skip
    if item.chunk:
        out["action"] = np.stack([rec.action for rec in window] + [first.action * 0] * (item.n_step - m))
        out["mask"] = np.arange(item.n_step) < m
    return out


def expected_sequence(oracle: Oracle, item: relive.Sequences, i: int, every: int) -> dict[str, Any]:
    """Return the sequence of the anchor `i`; None where a value does not matter."""
    anchor, lane = divmod(i, oracle.lanes)
    recs, length, n = oracle.recs[lane], item.steps, item.n_step
    zero, stream = recs[anchor].action * 0, recs[anchor].stream
    position = next(k for k, rec in enumerate(stream) if rec.call == anchor)
    back = 0 if item.across_episodes else min(item.burn_in, position)
    front = 0 if item.across_episodes else item.burn_in - back
    call = anchor - back
    # The calls of the item: to the end of the stream, or across episodes to a cut.
    calls: list[int] = []
    for c in range(call, call + length - front + n - 1):
        rec = recs.get(c)
        calls.append(c)
        if rec is None:
            assert item.across_episodes
            continue
        if rec.cut or (not item.across_episodes and rec.stream[-1] is rec):
            break
    last = calls[-1]

    def after(c: int) -> Any:
        rec = recs.get(c)
        if rec is None:
            return None
        over = rec.terminated or rec.truncated or rec.cut
        return None if over and not rec.known else rec.after

    def seen(k: int) -> Any:
        c = call + k
        if k < 0:
            return recs[call].obs
        if k < len(calls):
            return recs[c].obs if c in recs else None
        return after(last)

    out: dict[str, Any] = collections.defaultdict(list)
    for k in range(-front, length - front + n):
        out["all_obs"].append(seen(k))
        before = recs.get(call + k - 1)
        here = recs.get(call + k) if 0 <= k < len(calls) else None
        if k == len(calls):
            led = before is not None
        elif k > len(calls) or before is None or k < 0:
            led = False
        else:  # in a hole: what led to the observation that waits there
            led = here is None or before.stream is here.stream
        out["all_prev_action"].append(before.action if led else zero)
        out["all_prev_reward"].append(before.reward if led else 0.0)
    for k in range(-front, length - front):
        rec = recs.get(call + k) if 0 <= k < len(calls) else None
        out["mask"].append(rec is not None)
        if rec is None:
            nothing = {"action": zero, "reward": 0.0, "extra": 0, "steps": 0, "discount": 0.0, "terminated": False}
            for name, value in (nothing | {"truncated": False, "step_ids": -1, "state": zero[:2]}).items():
                out[name].append(value)
            out["next_obs"].append(None if item.across_episodes else seen(k + n))
            continue
        window = [each for each in oracle.window(lane, call + k, n) if each.call <= last]
        end = window[-1]
        unknown = (end.terminated or end.truncated or end.cut) and not end.known
        out["next_obs"].append(None if unknown else end.after)
        out["action"].append(rec.action)
        out["extra"].append(rec.extra)
        out["steps"].append(len(window))
        out["state"].append(rec.state)
        out["reward"].append(sum(item.gamma**j * each.reward for j, each in enumerate(window)))
        out["discount"].append(0.0 if end.terminated or unknown else item.gamma ** len(window))
        out["terminated"].append(end.terminated)
        out["truncated"].append(end.truncated)
        out["step_ids"].append((call + k) * oracle.lanes + lane)
    for name in ("obs", "prev_action", "prev_reward"):
        out[name] = out[f"all_{name}"][:length]
    out |= {"ids": i, "weights": 1.0, "first": recs[call].stream[0] is recs[call]}
    if every > 1:
        out["state"] = recs[call].state if call % every == 0 else zero[:2]
    return dict(out)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if two observations are equal."""
    return all(np.array_equal(one[name], other[name]) for name in one)


def compare(batch: relive.Batch, wanted: list[dict[str, Any]], item: Any) -> int:
    """Compare a batch with the items that it has to have; return how many numbers were compared."""
    rows = {name: [each[name] for each in wanted] for name in wanted[0] if not name.startswith("_")}
    sequences = isinstance(item, relive.Sequences)
    if sequences and not item.step_ids:
        rows.pop("step_ids")
    assert set(batch) == set(rows)
    compared = 0
    for name, values in rows.items():
        timed = isinstance(values[0], list)
        turned = sequences and item.time_major and timed
        for part in ("stacked", "plain") if "obs" in name else (None,):
            tensor = (batch[name] if part is None else batch[name][part]).numpy()
            found, right = [], []
            for b, value in enumerate(values):
                for t, one in enumerate(value if timed else [value]):
                    if one is not None:
                        right.append(one if part is None else one[part])
                        found.append(tensor[(t, b) if turned else (b, t)] if timed else tensor[b])
            if right:
                near = {"reward": 1e-5, "discount": 1e-6}.get(name, 0.0)
                np.testing.assert_allclose(np.stack(found), np.stack(right), rtol=near, atol=near, err_msg=name)
                compared += np.stack(right).size
    return compared


def tensors(shown: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Join the observations of all lanes."""
    return {name: torch.from_numpy(np.stack([each[name] for each in shown])) for name in shown[0]}
