"""Where chunks of episodes are: in a list at first, then in the lanes of a buffer."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..._base.capabilities import completed
from ...buffer import ReplayBuffer
from ...errors import ReliveWarning, StaleId, event
from ...items import Item
from ._chunks import Chunk
from ._sequences import led


class Waiting:
    """Chunks in the order in which they came; the oldest go where there are more than `capacity` steps.

    Args:
        capacity: Steps.
        chunks: The first ones.
    """

    def __init__(self, capacity: int, chunks: Iterable[Chunk] = ()) -> None:
        self.chunks: deque[Chunk] = deque()
        self.steps, self._capacity = 0, capacity
        self._counts: Counter[str] = Counter()  # chunks by episode
        for chunk in chunks:
            self.add(chunk)

    @property
    def episodes(self) -> int:
        """The number of episodes that have steps here."""
        return len(self._counts)

    def add(self, chunk: Chunk) -> bool:
        """Take a chunk; return whether its episode is new."""
        self.chunks.append(chunk)
        self._counts[chunk.episode] += 1
        self.steps += len(chunk.reward)
        new = self._counts[chunk.episode] == 1
        while self.steps > self._capacity and len(self.chunks) > 1:
            oldest = self.chunks.popleft()
            self.steps -= len(oldest.reward)
            self._counts[oldest.episode] -= 1
            if not self._counts[oldest.episode]:
                del self._counts[oldest.episode]
        return new

    def under_way(self) -> int:
        """The largest number of episodes that were under way at a time, at least 1."""
        most, now = 1, set()
        for chunk in self.chunks:
            now.add(chunk.episode)
            most = max(most, len(now))
            if chunk.ended:
                now.discard(chunk.episode)
        return most


class _Open(NamedTuple):
    """An episode under way: its lane, its number, and the step that is to come."""

    lane: int
    number: int
    step: int


class Laid:
    """Chunks in a buffer, of which an episode under way has a lane for itself.

    Args:
        buffer: Whose lanes they are.
        at: The class that a warning of too few lanes names.
        numbers: Episodes so far.
        ends: By lane, the numbers of its stored episodes and their newest ids; None: no steps.
        leads: By lane, the ids of the stand-ins in front of episodes, where items are sequences; None: there are none.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        at: str,
        numbers: int = 0,
        ends: Sequence[Iterable[tuple[int, int]]] | None = None,
        leads: Sequence[Iterable[int]] | None = None,
    ) -> None:
        self.buffer, self.numbers, self._at = buffer, numbers, at
        self.ends = [deque(each) for each in ([()] * buffer.num_envs if ends is None else ends)]
        self.leads = [deque(each) for each in ([()] * buffer.num_envs if leads is None else leads)]
        self._open: dict[str, _Open] = {}  # the one that was continued last comes last
        self._free = list(range(buffer.num_envs))

    @property
    def episodes(self) -> int:
        """The number of episodes that have steps here."""
        return sum(map(len, self.ends))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.buffer) - sum(map(len, self.leads))

    def add(self, chunk: Chunk) -> bool:
        """Store a chunk; return whether its episode is new."""
        buffer, known = self.buffer, self._open.get(chunk.episode)
        lane = self._lane() if known is None else known.lane
        if known is not None and known.step != chunk.first:
            buffer.cut([lane])
        number = self.numbers if known is None else known.number
        begins = known is None and chunk.first == 0 and completed(buffer.item, Item).time_major is not None
        ids = buffer.extend(env_ids=[lane], **(led(chunk) if begins else chunk).steps(number))
        newest = int(ids.max())
        if begins:
            self.leads[lane].append(int(ids.min()))
        self._open.pop(chunk.episode, None)
        if known is None:
            self.numbers += 1
            self._free = [each for each in self._free if each != lane]
        if chunk.ended:
            self._free.append(lane)
        else:
            self._open[chunk.episode] = _Open(lane, number, chunk.first + len(chunk.reward))
        ends, leads = self.ends[lane], self.leads[lane]
        if ends and ends[-1][0] == number:
            ends.pop()
        ends.append((number, newest))
        while not self._stores(ends[0][1]):
            ends.popleft()
        while leads and not self._stores(leads[0]):
            leads.popleft()
        return known is None

    def _stores(self, id_: int) -> bool:
        """Tell if a step is still stored."""
        try:
            self.buffer.follow([id_], 0)
        except StaleId:
            return False
        return True

    def _lane(self) -> int:
        """The lane for a new episode: the free one with the fewest rows so far."""
        if self._free:
            newest = [self.ends[lane][-1][1] // self.buffer.num_envs if self.ends[lane] else -1 for lane in self._free]
            return self._free[newest.index(min(newest))]
        what = f"More than {self.buffer.num_envs} episodes are under way, so the windows of some are cut"
        remedy = "`num_envs=` says how many there may be, over all env-runners"
        warnings.warn(event(what, self._at, remedy), ReliveWarning, stacklevel=4)
        lane = self._open.pop(next(iter(self._open))).lane
        self.buffer.cut([lane])
        return lane
