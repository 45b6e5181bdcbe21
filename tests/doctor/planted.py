"""One small buffer that is right, and the faults that can be planted in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

# The fault, the table that has to show it, and a part of the probe's name.
FAULTS = {
    "stores the steps that only reset": ("A", "phantom"),
    "takes every end for a terminal state": ("A", "truncation"),
    "takes the next episode's first observation for the final one": ("A", "next_obs"),
    "bootstraps from terminal states": ("A", "terminal"),
    "stores the reward of the step before": ("A", "wrong reward"),
    "stores rewards as int": ("A", "rounded reward"),
    "stores rewards as int8": ("A", "rounded reward"),
    "stores rewards as float16": ("A", "rounded reward"),
    "does not discount the rewards": ("A", "wrong reward"),
    "discounts by gamma**n at ends": ("A", "wrong discount"),
    "discounts by gamma alone": ("A", "wrong discount"),
    "runs across truncations": ("A", "wrong reward"),
    "ignores n": ("A", "n ignored"),
    "mixes up the lanes": ("A", "next_obs"),
    "keeps a view of the observation": ("A", "not a step"),
    "leaves the last step of an episode out": ("A", "missing"),
    "stores ends twice": ("A", "twice"),
    "runs across the newest step": ("B", "wraps"),
    "runs across resets": ("B", "reset"),
    "lets late priorities land": ("C", "late"),
    "accepts NaN": ("C", "NaN"),
    "accepts infinity": ("C", "infinite"),
    "accepts negative priorities": ("C", "negative"),
    "divides by a priority of 0": ("C", "TD error 0"),
    "draws slots that were never filled": ("C", "never filled"),
    "gives the TD errors in the wrong order": ("C", "reaches"),
    "ignores updates": ("C", "reaches"),
    "changes the others before it refuses": ("C", "NaN"),
    "marks what it draws": ("D", "changes"),
    "marks what it draws, and takes the marks back": ("D", "changes"),
    "states even probabilities": ("D", "stated"),
    "states masses": ("D", "stated"),
    "sums in float32": ("D", "mass"),
    "sums in float32, one by one": ("D", "mass"),
    "draws float32 numbers": ("D", "mass"),
    "sums in float32 and draws from strata": ("D", "mass"),
    "takes masses of 0 for 1": ("D", "mass"),
    "never draws the last slot": ("F", "never drawn"),
    "never draws the newest step": ("F", "never drawn"),
    "never draws the first step": ("F", "never drawn"),
    "draws what was overwritten": ("F", "not stored"),
    "draws the next reward": ("F", "not stored"),
    "drops priorities after an add": ("F", "later add"),
    "writes to late handles": ("F", "late values"),
    "writes to the next slot": ("F", "reaches"),
    "saves views": ("F", "after a save"),
    "saves once": ("F", "before a save"),
}


class Planted:
    """A prioritized n-step buffer and its loop; with one fault, or with none."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self._rng, self._number = fault, np.random.default_rng(0), 0
        self._capacity: int | None = None
        self._saved: Any = None

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: tuple[int, ...] = (),
    ) -> None:
        self._n, self._gamma = n_step, gamma
        rows = (capacity or 2 * num_envs * calls) // num_envs
        if capacity is None or capacity != self._capacity:
            self._steps: list[dict[int, Any]] = [{} for _ in range(num_envs)]  # by slot
            self._heads, self._rows = [0] * num_envs, rows
            self._priority = np.zeros((num_envs, rows))
            self._marks = np.zeros((num_envs, rows), np.int8)
            self._values = np.full((num_envs, rows), -1.0)
            self._ghosts: list[Any] = []
        self._capacity = capacity
        envs = gymnasium.vector.SyncVectorEnv([make_env] * num_envs, autoreset_mode=autoreset_mode)
        obs, _ = envs.reset()
        ended, before = np.zeros(num_envs, bool), np.zeros(num_envs)
        self._cut(range(num_envs))
        for number in range(calls):
            if number in reset_at:
                obs, _ = envs.reset()
                ended[:] = False
                if self.fault != "runs across resets":
                    self._cut(range(num_envs))
            next_obs, reward, terminated, truncated, infos = envs.step(np.zeros(num_envs, int))
            final = next_obs.copy()
            if autoreset_mode is AutoresetMode.SAME_STEP and "first observation" not in self.fault:
                for lane in np.flatnonzero(terminated | truncated):
                    final[lane] = infos["final_obs"][lane]
            for lane in range(num_envs):
                skips = autoreset_mode is AutoresetMode.NEXT_STEP and ended[lane]
                if not skips or self.fault == "stores the steps that only reset":
                    given = before[lane] if "step before" in self.fault else reward[lane]
                    if "rewards as" in self.fault:
                        kind = np.dtype(self.fault.split()[-1])
                        given = float((np.int64(given) if kind.kind == "i" else given).astype(kind))
                    after = final[lane - 1 if "lanes" in self.fault else lane]
                    start = next_obs if "a view" in self.fault else obs
                    self._add(lane, start[lane], given, bool(terminated[lane]), bool(truncated[lane]), after)
            obs, ended, before = next_obs, terminated | truncated, reward
            if autoreset_mode is AutoresetMode.DISABLED and ended.any():
                obs, _ = envs.reset(options={"reset_mask": ended})

    def _add(self, lane: int, obs: Any, reward: float, terminated: bool, truncated: bool, next_obs: Any) -> None:
        ends = terminated or truncated
        if ends and self.fault == "leaves the last step of an episode out":
            self._cut([lane])
            return
        for _ in range(2 if ends and self.fault == "stores ends twice" else 1):
            slot = self._heads[lane] % self._rows
            if slot in self._steps[lane]:
                self._ghosts.append(self._item(lane, slot))
            kept = (obs if "a view" in self.fault else obs.copy(), reward, terminated, truncated, next_obs.copy())
            self._steps[lane][slot] = SimpleNamespace(step=kept, number=self._number, cut=False)
            self._priority[lane, slot], self._values[lane, slot] = 1.0, -1.0
            self._heads[lane] += 1
            self._number += 1

    def _cut(self, lanes: Any) -> None:
        for lane in lanes:
            newest = self._steps[lane].get((self._heads[lane] - 1) % self._rows)
            if newest:
                newest.cut = True

    def _item(self, lane: int, slot: int) -> SimpleNamespace:
        first = self._steps[lane].get(slot)
        if first is None:  # only with a fault
            return SimpleNamespace(
                obs=0.0, reward=0.0, bootstrap=0.0, next_obs=0.0, handle=(lane, slot, -1), weight=1.0
            )
        obs, total, m, bootstrap = first.step[0], 0.0, 0, 0.0
        longest = 1 if self.fault == "ignores n" else self._n
        while m < longest:
            record = self._steps[lane][(slot + m) % self._rows]
            _, reward, terminated, truncated, next_obs = record.step
            total += reward * (1.0 if self.fault == "does not discount the rewards" else self._gamma**m)
            m += 1
            ends = terminated or (truncated and self.fault != "runs across truncations")
            newest = (slot + m) % self._rows == self._heads[lane] % self._rows
            if newest and len(self._steps[lane]) == self._rows and self.fault == "runs across the newest step":
                newest = False
            if ends or record.cut or newest:
                break
        power = {"discounts by gamma**n at ends": self._n, "discounts by gamma alone": 1}.get(self.fault, m)
        dead = terminated or (truncated and self.fault == "takes every end for a terminal state")
        bootstrap = 0.0 if dead and self.fault != "bootstraps from terminal states" else self._gamma**power
        handle = (lane, slot, first.number)
        return SimpleNamespace(obs=obs, reward=total, bootstrap=bootstrap, next_obs=next_obs, handle=handle)

    def values(self) -> list[float]:
        return [self._values[lane, slot] for lane, steps in enumerate(self._steps) for slot in steps]

    def items(self) -> Iterator[SimpleNamespace]:
        for lane, steps in enumerate(self._steps):
            for slot in steps:
                yield self._item(lane, slot)

    def sample(self, n: int) -> list[SimpleNamespace]:
        mass, self._drawn_at = self._priority.ravel().copy(), self._number
        if self.fault == "draws slots that were never filled":
            mass[mass == 0] = 1.0
        by_lane = mass.reshape(self._priority.shape)
        for lane, head in enumerate(self._heads):
            if "last slot" in self.fault and head >= self._rows:
                by_lane[lane, -1] = 0.0
            if "newest" in self.fault:
                by_lane[lane, (head - 1) % self._rows] = 0.0
            if "first step" in self.fault and head < self._rows:
                by_lane[lane, 0] = 0.0
        with np.errstate(all="ignore"):
            bounds = np.cumsum(mass)
            at = np.minimum(np.searchsorted(bounds, self._rng.random(n) * bounds[-1], side="right"), len(mass) - 1)
            least = mass[[*self._filled()]].min()
            weights = least / mass[at] if "divides" in self.fault else 1.0 / (mass[at] * len(mass) / bounds[-1])
        if "marks" in self.fault:
            self._marks.ravel()[at] = 1
        items = [self._item(*divmod(int(i), self._rows)) for i in at]
        if "takes the marks back" in self.fault:
            self._marks[:] = 0
        for item, weight in zip(items, weights, strict=True):
            item.weight = weight
            item.reward += "next reward" in self.fault
        if self.fault == "draws what was overwritten" and self._ghosts:
            items[0] = SimpleNamespace(**vars(self._ghosts[-1]), weight=1.0)
        return items

    def probability(self) -> np.ndarray:
        masses = np.array([self._priority[lane, slot] for lane, steps in enumerate(self._steps) for slot in steps])
        masses = np.ones_like(masses) if self.fault == "states even probabilities" else masses
        return masses / (1.0 if self.fault == "states masses" else masses.sum())

    def write(self, handles: Any, values: Any) -> None:
        for (lane, slot, number), value in zip(handles, values, strict=True):
            if self._steps[lane][slot].number == number or "late handles" in self.fault:
                self._values[lane, (slot + ("next slot" in self.fault)) % self._rows] = value

    def save(self) -> Any:
        if self.fault == "saves once" and self._saved:
            return self._saved
        values = self._values if self.fault == "saves views" else self._values.copy()
        self._saved = {"steps": self._steps, "heads": self._heads, "rows": self._rows, "values": values}
        self._saved |= {"n": self._n, "gamma": self._gamma}
        return self._saved

    def load(self, saved: Any) -> None:
        for name, value in saved.items():
            setattr(self, f"_{name}", value)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"marks": self._marks}

    def choose(self, masses: np.ndarray, n: int) -> np.ndarray:
        kind = np.float32 if "sums in float32" in self.fault else np.float64
        if "masses of 0" in self.fault:
            masses = np.maximum(masses, 1.0)
        sums = np.cumsum(masses, dtype=kind if "one by one" in self.fault else np.float64).astype(kind)
        shares = self._rng.random(n, np.float32 if "float32 numbers" in self.fault else np.float64)
        if "strata" in self.fault:
            shares = (np.arange(n) + shares) / n
        return np.minimum(np.searchsorted(sums, shares * sums[-1], side="right"), len(masses) - 1)

    def _filled(self) -> Iterator[int]:
        for lane, steps in enumerate(self._steps):
            yield from (lane * self._rows + slot for slot in steps)

    def update(self, handles: list[tuple[int, int, int]], td_errors: np.ndarray) -> None:
        if self.fault == "ignores updates":
            return
        if "wrong order" in self.fault:
            td_errors = td_errors[::-1]
        bad = np.isnan(td_errors) & (self.fault != "accepts NaN")
        bad |= np.isinf(td_errors) & (self.fault != "accepts infinity")
        if bad.any() and self.fault != "changes the others before it refuses":
            raise ValueError("TD errors must be finite")
        eps = 0.0 if "divides" in self.fault else 1e-6
        values = td_errors if self.fault == "accepts negative priorities" else np.abs(td_errors)
        for (lane, slot, number), value, refused in zip(handles, values, bad, strict=True):
            if refused:
                continue
            if "after an add" in self.fault and self._number > self._drawn_at:
                continue
            if self._steps[lane][slot].number == number or self.fault == "lets late priorities land":
                self._priority[lane, slot] = value + eps
        if bad.any():
            raise ValueError("TD errors must be finite")


class Unprioritized(Planted):
    """It has no tables C and D."""

    sample = update = choose = write = None


class Unweighed(Planted):
    """It does not draw by a million masses, which takes longest."""

    choose = None


class Unstated(Unweighed):
    """It states no probabilities, to which thousands of draws are compared."""

    probability = None
