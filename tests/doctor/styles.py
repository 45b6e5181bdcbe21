"""Right buffers as people write them by hand, in many styles, and the mistakes that people make in each."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive.doctor import Item

COLUMNS = ("obs", "reward", "terminated", "truncated", "final", "cut")


class Given:
    """A pipeline that has what it is given."""

    lanes: Any = 2

    def __init__(self, items: Any) -> None:
        self._items = items

    def run(self, make_env: Any, num_envs: int, calls: int, n_step: int, gamma: float, *, autoreset_mode: Any) -> None:
        env = make_env()
        env.reset()
        env.step(0)

    def items(self) -> Any:
        return self._items


class Loop:
    """A loop over a vector environment that is right in every mode, and a buffer that the subclass writes."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.rng, self.capacity = fault, np.random.default_rng(0), None

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: Any = None,
        reset_at: Any = (),
    ) -> None:
        self.n, self.gamma, self.lanes = n_step, gamma, num_envs
        if capacity is None or capacity != self.capacity:
            self.rows = (capacity or 2 * num_envs * calls) // num_envs
            self.begin()
        self.capacity = capacity
        # As `SyncVectorEnv` goes through them, without what it does about spaces, which takes longest.
        envs, mode = [make_env() for _ in range(num_envs)], autoreset_mode
        for call in range(calls):
            if not call or call in reset_at:
                obs, ended = np.array([env.reset()[0] for env in envs]), [False] * num_envs
                if not call or self.fault != "resets unseen":
                    self.end_streams()
            after, steps = obs.copy(), []
            for lane, env in enumerate(envs):
                again = mode is AutoresetMode.NEXT_STEP and ended[lane]
                after[lane], *step, _ = (*env.reset()[:1], 0.0, False, False, {}) if again else env.step(0)
                final = after[lane].copy()
                if mode is AutoresetMode.SAME_STEP and any(step[1:]):
                    after[lane] = env.reset()[0]
                steps.append((*step, after[lane] if self.fault == "next first observation" else final))
            for lane, step in enumerate(steps):
                if mode is AutoresetMode.NEXT_STEP and ended[lane] and self.fault != "stores resets":
                    continue
                self.add(lane, after[lane] if self.fault == "a view" else obs[lane].copy(), *step)
            obs, ended = after, [any(step[1:3]) for step in steps]
            for lane in np.flatnonzero(ended) if mode is AutoresetMode.DISABLED else ():
                obs[lane] = envs[lane].reset()[0]

    def target(self, window: Any) -> Any:
        """Return reward, bootstrap and next_obs of `(reward, terminated, truncated, final, cut)`, oldest first."""
        total, factor, dead = 0.0, 1.0, None
        for reward, terminated, truncated, final, cut in window:  # noqa: B007
            total, factor = total + factor * reward, factor * self.gamma
            dead = terminated if dead is None or self.fault != "the first step's flag" else dead
            if self.fault == "ends swapped":
                dead = truncated
            if self.fault == "done either":
                dead = terminated or truncated
            if terminated or (truncated and self.fault not in ("over truncations", "keeps windows")) or cut:
                break
            if self.fault == "ignores n":
                break
        if self.fault == "gamma**n":
            factor = self.gamma**self.n
        if self.fault == "gamma once":
            factor = self.gamma
        return total, 0.0 if dead and self.fault != "ignores ends" else factor, final

    def end_streams(self) -> None: ...

    def sample(self, n: int) -> Any:
        items = list(self.items())
        return [items[i] for i in self.rng.integers(len(items), size=n)]

    def begin(self) -> None:
        raise NotImplementedError

    def add(self, lane: int, obs: Any, reward: float, terminated: bool, truncated: bool, final: Any) -> None:
        raise NotImplementedError

    def items(self) -> Any:
        raise NotImplementedError


class Ring(Loop):
    """Columns `[lanes, rows]`, and windows that are folded when they are drawn."""

    def column(self, name: str, kind: type) -> Any:
        return np.zeros((self.lanes, self.rows), kind)

    def begin(self) -> None:
        kept = np.dtype(self.fault.removeprefix("rewards as ")) if self.fault.startswith("rewards as") else np.float64
        kinds = (np.float64, kept, bool, bool, np.float64, bool)
        self.data = {name: self.column(name, kind) for name, kind in zip(COLUMNS, kinds, strict=True)}
        self.head, self.size, self.memo = [0] * self.lanes, [0] * self.lanes, {}

    def add(self, lane: int, *step: Any) -> None:
        at = self.head[lane] % self.rows
        self.memo.clear()
        for name, value in zip(COLUMNS, (*step, False), strict=True):
            clipped = min(value, 1.0) if self.fault == "clips rewards" and name == "reward" else value
            self.data[name][lane, at] = clipped.item() if hasattr(clipped, "item") else clipped
        self.head[lane] += 1
        pointer = self.head[lane] % self.rows
        whole = self.fault != "size by pointer"
        self.size[lane] = min(self.head[lane], self.rows) if whole else max(self.size[lane], pointer)

    def end_streams(self) -> None:
        self.memo.clear()
        for lane in range(self.lanes):
            if self.head[lane]:
                self.data["cut"][lane, (self.head[lane] - 1) % self.rows] = True

    def item(self, lane: int, slot: int) -> Item:
        newest, rows = self.head[lane] - 1, []
        for at in range(slot, slot + self.n):
            row = at % self.rows
            last = row == newest % self.rows and self.fault != "over the head"
            stop = bool(self.data["cut"][lane, row]) or last
            rows.append((*(self.data[name][lane, row].item() for name in COLUMNS[1:5]), stop))
        return Item(self.data["obs"][lane, slot].item(), *self.target(rows))

    def slots(self) -> list[tuple[int, int]]:
        more = self.fault == "a slot too many"
        return [(lane, slot) for lane in range(self.lanes) for slot in range(min(self.size[lane] + more, self.rows))]

    def items(self) -> Any:
        return [self.item(*at) for at in self.slots()]

    def folded(self, places: list[tuple[int, int]]) -> list[Item]:
        """Fold the window at each place, once until the next step is added."""
        for place in {*places} - self.memo.keys():
            self.memo[place] = self.item(*place)
        return [self.memo[place] for place in places]

    def sample(self, n: int) -> Any:
        if self.fault == "the same batch":
            self.rng = np.random.default_rng(0)
        lanes = self.rng.integers(self.lanes, size=n)
        if self.fault == "views":
            lane, at = lanes[0], int(self.rng.integers(max(self.size[lanes[0]] - n, 0) + 1))
            views = {name: column[lane, at : min(at + n, self.size[lane])] for name, column in self.data.items()}
            return Item(views["obs"], views["reward"], self.gamma * ~views["terminated"], views["final"])
        less = 1 if self.fault == "one slot less" else 0
        first = 1 if self.fault == "from one on" else 0
        items = self.folded([(lane, int(self.rng.integers(first, self.size[lane] - less))) for lane in lanes.tolist()])
        if self.fault == "rewards of the batch":
            items = [item._replace(reward=items[0].reward) for item in items]
        if "in place" in self.fault:
            kept = self.data["reward"][0, 0].item()
            self.data["reward"][0, 0] += 1e-3
            if "back" in self.fault:
                self.data["reward"][0, 0] = kept
        return items

    def arrays(self) -> Any:
        return self.data


class Mapped(Ring):
    """Columns in files that are mapped to memory, as HDF5's are."""

    def column(self, name: str, kind: type) -> Any:
        kind = np.float16 if self.fault == "half precision" and "obs" in name else kind
        with tempfile.TemporaryFile() as file:
            return np.memmap(file, kind, "w+", shape=(self.lanes, self.rows))


class SharedMemory(Ring):
    """Columns in shared memory."""

    def column(self, name: str, kind: type) -> Any:
        block = multiprocessing.RawArray("b", self.lanes * self.rows * np.dtype(kind).itemsize)
        return np.frombuffer(block, kind).reshape(self.lanes, self.rows)


class Tensors(Ring):
    """Columns that are tensors."""

    batch = 64

    def column(self, name: str, kind: type) -> Any:
        import torch

        return torch.zeros((self.lanes, self.rows), dtype=torch.bool if kind is bool else torch.float64)


class Records(Ring):
    """One structured array."""

    def begin(self) -> None:
        kinds = [(name, bool if name in ("terminated", "truncated", "cut") else float) for name in COLUMNS]
        self.data: Any = np.zeros((self.lanes, self.rows), kinds)
        self.head, self.size, self.memo = [0] * self.lanes, [0] * self.lanes, {}

    arrays = None  # type: ignore[assignment]


class Folded(Loop):
    """Windows that are folded while steps are added, in one list of items; the oldest are popped."""

    def begin(self) -> None:
        self.stored: Any = deque(maxlen=self.capacity_of()) if self.uses_deque else []
        self.windows: list[list[Any]] = [[] for _ in range(self.lanes)]

    uses_deque = True

    def capacity_of(self) -> int:
        return self.lanes * self.rows

    def push(self, window: list[Any]) -> None:
        rest = [(*step[1:], False) for step in window]
        if not self.uses_deque and len(self.stored) >= self.capacity_of():
            self.stored.pop(0)
        self.stored.append((float(window[0][0][0]), *self.target(rest)))

    def add(self, lane: int, *step: Any) -> None:
        window = self.windows[0 if self.fault == "one window for all" else lane]
        window.append(step)
        if len(window) == self.n:
            self.push(window)
            window.pop(0)
        if step[2] or (step[3] and self.fault != "keeps windows"):
            self.flush(window)

    def flush(self, window: list[Any]) -> None:
        while window:
            if self.fault != "no flush":
                self.push(window)
            if self.fault == "flushes twice":
                self.push(window)
            window.pop(0)

    def end_streams(self) -> None:
        for window in getattr(self, "windows", []):
            self.flush(window)

    def items(self) -> Any:
        return list(self.stored)


class Listed(Folded):
    """The same in a list."""

    uses_deque = False


class Episodes(Loop):
    """A list of episodes; whole ones are dropped."""

    def begin(self) -> None:
        self.episodes: list[tuple[int, list[Any]]] = []
        self.open: dict[int, list[Any]] = {}
        self.index: list[tuple[list[Any], int]] = []

    def add(self, lane: int, *step: Any) -> None:
        if lane not in self.open:
            self.open[lane] = []
            self.episodes.append((lane, self.open[lane]))
        self.open[lane].append((*step, False))
        self.index.append((self.open[lane], len(self.open[lane]) - 1))
        while sum(len(episode) for _, episode in self.episodes) > self.lanes * self.rows:
            gone = self.episodes.pop(0)[1]
            if gone is self.open.get(lane):
                del self.open[lane]
            if self.fault != "keeps the index":
                self.index = [(episode, at) for episode, at in self.index if episode is not gone]
        if step[2] or step[3]:
            if self.fault == "drops last steps" and lane in self.open:
                self.open[lane].pop()
            self.open.pop(lane, None)

    def end_streams(self) -> None:
        if hasattr(self, "open"):
            self.open.clear()

    def at(self, episode: list[Any], at: int) -> Item:
        return Item(float(episode[at][0][0]), *self.target([step[1:] for step in episode[at : at + self.n]]))

    def items(self) -> Any:
        return [self.at(episode, at) for _, episode in self.episodes for at in range(len(episode))]

    def sample(self, n: int) -> Any:
        known = [(episode, at) for episode, at in self.index if at < len(episode)]
        return [self.at(*known[i]) for i in self.rng.integers(len(known), size=n)]


class Numbered(Ring):
    """A prioritized ring whose handles name steps; with values that are written back, and saves."""

    arrays, batch = None, 64  # type: ignore[assignment]

    def begin(self) -> None:
        super().begin()
        self.mass = np.zeros((self.lanes, self.rows))
        self.number = np.full((self.lanes, self.rows), -1)
        self.extra = np.zeros((self.lanes, self.rows))
        self.added, self.drawn_at = 0, 0

    def add(self, lane: int, *step: Any) -> None:
        at = self.head[lane] % self.rows
        self.mass[lane, at], self.number[lane, at], self.extra[lane, at] = 1.0, self.added, 0.0
        self.added += 1
        super().add(lane, *step)

    def sample(self, n: int) -> Any:
        mass, self.drawn_at = self.mass.ravel(), self.added
        if self.fault == "needs an update first" and mass.max() == mass[mass > 0].min():
            raise RuntimeError("no priorities yet")
        if self.fault == "draws empty slots":
            mass = np.maximum(mass, 1e-3)
        at = self.rng.choice(len(mass), n, p=mass / mass.sum())
        weights = (mass.sum() / len(mass) / mass[at]) ** (-1 if self.fault == "weighs upside down" else 1)
        if self.fault == "no eps":
            weights = mass[self.number.ravel() >= 0].min() / mass[at]
        numbers, where = self.number.ravel()[at].tolist(), [divmod(i, self.rows) for i in at.tolist()]
        told = [((*spot, n), weight) for spot, n, weight in zip(where, numbers, weights.tolist(), strict=True)]
        return [Item(*item[:4], *more) for item, more in zip(self.folded(where), told, strict=True)]

    def known(self, lane: int, slot: int, number: int) -> bool:
        if self.fault == "nothing after an add" and self.added > self.drawn_at:
            return False
        return self.fault == "slots for steps" or self.number[lane, slot] == number

    def update(self, handles: Any, td_errors: Any) -> None:
        if self.fault == "ignores updates":
            return
        values = np.abs(td_errors) + (0.0 if self.fault == "no eps" else 1e-6)
        if self.fault == "negative mass":
            values = np.maximum(td_errors, 0.0) + 0.0
        refused = (np.isnan(values) & (self.fault != "NaN")) | (np.isinf(values) & (self.fault != "infinity"))
        if refused.any() and self.fault != "changes the others before it refuses":
            raise ValueError("not finite")
        if self.fault == "sorted":
            values = np.sort(values)
        for (lane, slot, number), value in zip(handles, values, strict=True):
            if self.known(lane, slot, number) and (value < np.inf or not refused.any()):
                self.mass[lane, slot] = value
        if refused.any():
            raise ValueError("not finite")

    def write(self, handles: Any, values: Any) -> None:
        for (lane, slot, number), value in zip(handles, values, strict=True):
            if self.known(lane, slot, number):
                self.extra[lane, (slot + 1) % self.rows if self.fault == "one slot later" else slot] = value

    def values(self) -> Any:
        return [self.extra[at] for at in self.slots()]

    def save(self) -> Any:
        names = ("data", "head", "size", "number", "extra", "mass", "lanes", "rows", "n", "gamma", "added")
        saved = {name: getattr(self, name) for name in names}
        if self.fault == "saves rows once" and hasattr(self, "first"):
            saved["extra"] = self.first
        if self.fault != "saves no copy":
            saved["extra"] = saved["extra"].copy()
        self.first = saved["extra"]
        return saved

    def load(self, saved: Any) -> None:
        vars(self).update(saved)
        self.memo = {}


class Whole(Numbered):
    """The same with arrays that are watched, probabilities that it states, and a choice by masses."""

    def arrays(self) -> Any:  # type: ignore[override]
        return self.data

    def probability(self) -> Any:
        masses = np.array([self.mass[at] for at in self.slots()])
        masses = np.ones_like(masses) if self.fault == "states even probabilities" else masses
        return masses / (1.0 if self.fault == "states masses" else masses.sum())

    def choose(self, masses: Any, n: int) -> Any:
        kind = np.float32 if "sums in float32" in self.fault else np.float64
        if "masses of 0" in self.fault:
            masses = np.maximum(masses, 1.0)
        sums = np.cumsum(masses, dtype=kind if "one by one" in self.fault else np.float64).astype(kind)
        shares = self.rng.random(n, np.float32 if "float32 numbers" in self.fault else np.float64)
        if "strata" in self.fault:
            shares = (np.arange(n) + shares) / n
        return np.minimum(np.searchsorted(sums, shares * sums[-1], side="right"), len(masses) - 1)


class Stated(Whole):
    """It does not draw by a million masses, which takes longest."""

    choose = arrays = None  # type: ignore[assignment]


class Chosen(Whole):
    """It states no probabilities, to which thousands of draws are compared."""

    probability = arrays = None  # type: ignore[assignment]


class Stored(Ring):
    """It has tables A and B alone."""

    sample = arrays = None  # type: ignore[assignment]


class Successors(Loop):
    """Each observation once: an item's `next_obs` is the observation of the row after it; ends have a row more."""

    def begin(self) -> None:
        self.stored: list[deque[Any]] = [deque() for _ in range(self.lanes)]

    def add(self, lane: int, obs: Any, reward: float, terminated: bool, truncated: bool, final: Any) -> None:
        rows = self.stored[lane]
        if rows and rows[-1][1] is None and self.fault != "no final rows" and not rows[-1][2]:
            rows.pop()  # the open row of the step before is this step's own
        rows.append([float(obs[0]), reward, False, terminated, truncated])
        rows.append([float(final[0]), None, terminated or truncated, False, False])
        if self.fault == "no final rows":
            rows.pop()
        while sum(row[1] is not None for row in rows) > self.rows:
            rows.popleft()
            while rows[0][1] is None:
                rows.popleft()

    def end_streams(self) -> None:
        for rows in getattr(self, "stored", []):
            if rows and rows[-1][1] is None:
                rows[-1][2] = True

    def items(self) -> Iterator[Item]:
        for rows in map(list, self.stored):
            for at, (obs, reward, *_) in enumerate(rows[:-1]):
                if reward is None:
                    continue
                window = []
                for row, after in zip(rows[at:], rows[at + 1 :], strict=False):
                    if row[1] is None or len(window) == self.n:
                        break
                    window.append((row[1], row[3], row[4], after[0], after[1] is None and after[2]))
                yield Item(obs, *self.target(window))


STYLES: tuple[type[Loop], ...] = (Ring, Mapped, SharedMemory, Tensors, Records, Folded, Listed, Episodes, Numbered)
STYLES += (Successors,)
# Style, mistake, and a part of what the doctor has to call it.
MISTAKES: tuple[tuple[Callable[[str], Loop], str, str], ...] = (
    (Ring, "size by pointer", "never drawn"),
    (Ring, "one slot less", "never drawn"),
    (Ring, "over the head", "ring wraps"),
    (Ring, "resets unseen", "reset in mid"),
    (Ring, "over truncations", "wrong reward"),
    (Mapped, "half precision", "not a step"),
    (Mapped, "clips rewards", "wrong reward"),
    (Mapped, "from one on", "never drawn"),
    (Mapped, "views", "change later"),
    (SharedMemory, "a slot too many", "not a step"),
    (SharedMemory, "a view", "not a step"),
    (SharedMemory, "ends swapped", "truncation taken"),
    (SharedMemory, "gamma**n", "wrong discount"),
    (Tensors, "the first step's flag", "terminal state"),
    (Tensors, "rewards of the batch", "not stored"),
    (Tensors, "scales in place", "changes what is stored"),
    (Records, "the same batch", "never drawn"),
    (Records, "next first observation", "wrong next_obs"),
    (Records, "stores resets", "phantom"),
    (Folded, "one window for all", "wrong reward"),
    (Folded, "gamma once", "wrong discount"),
    (Folded, "keeps windows", "wrong reward"),
    (Listed, "no flush", "missing"),
    (Listed, "flushes twice", "twice"),
    (Listed, "resets unseen", "reset in mid"),
    (Episodes, "drops last steps", "missing"),
    (Episodes, "keeps the index", "not stored"),
    (Episodes, "done either", "truncation taken"),
    (Numbered, "slots for steps", "late priorities"),
    (Numbered, "slots for steps", "late values"),
    (Numbered, "infinity", "infinite"),
    (Numbered, "needs an update first", "without updates"),
    (Numbered, "no eps", "TD error 0"),
    (Numbered, "ignores updates", "reaches"),
    (Numbered, "changes the others before it refuses", "NaN"),
    (Stated, "states even probabilities", "stated"),
    (Stated, "states masses", "stated"),
    (Chosen, "sums in float32", "by mass"),
    (Chosen, "sums in float32, one by one", "by mass"),
    (Chosen, "draws float32 numbers", "by mass"),
    (Chosen, "sums in float32 and draws from strata", "by mass"),
    (Chosen, "takes masses of 0 for 1", "by mass"),
    (Stored, "rewards as int", "rounded reward"),
    (Stored, "rewards as float16", "rounded reward"),
    (Stored, "ignores n", "n ignored"),
    (Ring, "changes in place, and back", "changes what is stored"),
    (Numbered, "negative mass", "negative"),
    (Numbered, "NaN", "NaN"),
    (Numbered, "weighs upside down", "weights fall"),
    (Numbered, "nothing after an add", "later add"),
    (Numbered, "sorted", "reaches"),
    (Numbered, "draws empty slots", "never filled"),
    (Numbered, "one slot later", "written value"),
    (Numbered, "saves no copy", "after a save"),
    (Numbered, "saves rows once", "before a save"),
    (Successors, "no final rows", "wrong next_obs"),
    (Successors, "ignores ends", "terminal state"),
)
