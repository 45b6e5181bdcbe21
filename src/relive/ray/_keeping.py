"""Where shards save themselves, and what they come back from: directories as `checkpoints.sharded` describes them.

The file about a shard is written before the save that it describes, with all that it has on earlier ones, so it may be
ahead, never behind; and only where the directory has this shard's own saves, or none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._base.types import Int64
from .._buffer import stored
from .._disk.files import Folder
from .._opening import load
from ..buffer import ReplayBuffer
from ..checkpoints import _manifest
from ..checkpoints._save_task import manifests_of
from ..checkpoints._saved import Saved
from ..checkpoints.sharded import MANIFEST, directory, facts_name, newest, read_json, saves_in, write_json
from ..errors import CorruptionError, ReliveError, StorageError, event, message
from ._ids import Ids, lanes_in
from ._wire import ShardPlan

_LOG = logging.getLogger("relive")
Found = tuple[ReplayBuffer, Ids, dict[str, int]]


class Keeper:
    """Saves one shard, when it is asked to and by the clock."""

    def __init__(self, plan: ShardPlan, number: int) -> None:
        self._plan, self._number = plan, number
        self._mark: object = None
        self._last: Saved | None = None

    def open(self, again: bool) -> None:
        """Make sure that `save_dir` can be written, and has no saves of other shards.

        Raises:
            StorageError: It cannot, or it has.
        """
        plan = self._plan
        if plan.save_dir is None:
            return
        if not os.path.isabs(plan.save_dir):
            remedy = "give an absolute path, which means the same on every node"
            raise StorageError(message("an absolute path", f"`{plan.save_dir}`", "Shards(save_dir)", remedy))
        folder = Folder(plan.save_dir, create=True)
        try:
            name = f"probe-{self._number}"
            folder.write(name, [b""])
            folder.remove(name)
        finally:
            folder.close()
        if not again and plan.source != plan.save_dir and newest(plan.save_dir, self._number) is not None:
            remedy = "go on with them by `Shards.load(path)`, or give another directory"
            raise StorageError(message("a directory without saves", "one with them", plan.save_dir, remedy))

    def keep(self, save: Callable[[], None]) -> None:
        """Call `save` every `save_every` seconds, in a thread that does not keep the shard alive."""
        every = self._plan.save_every
        if self._plan.save_dir is None or every is None:
            return
        pause = threading.Event()

        def run() -> None:
            while not pause.wait(every):
                try:
                    save()
                except ReliveError as error:
                    _LOG.error("%s", event(f"Shard {self._number} could not be saved: {error}", "relive.ray"))

        threading.Thread(target=run, name="relive-save", daemon=True).start()

    def save_if_changed(self, mark: object, buffer: ReplayBuffer, ids: Ids, seen: dict[str, int]) -> Saved | None:
        """Begin a save in `save_dir` unless `mark` is what it was at the last one that came to its end."""
        if self._plan.save_dir is None or mark == self._mark:
            return None
        return self.save(self._plan.save_dir, buffer, ids, seen)

    def saved(self, mark: object) -> None:
        """Note that a save of what `mark` stands for has come to its end."""
        self._mark = mark

    def save(self, path: str, buffer: ReplayBuffer, ids: Ids, seen: dict[str, int]) -> Saved:
        """Begin a save in `path`, of this instant."""
        if self._last is not None:
            with contextlib.suppress(ReliveError):  # which is told to those that began it
                self._last.wait()  # or this one would be told of under its number
        at = directory(path, self._number)
        with contextlib.closing(Folder(at, create=True)) as folder:
            manifests_of(folder, buffer._core.tally.identity)  # where the save would be refused, nothing is replaced
            numbers = _manifest.numbers(folder)
        saves = _known(path, self._number, numbers)
        saves[str(1 + max(numbers, default=0))] = {
            "lanes": ids.lanes.tolist(),
            "lives": ids.lives.tolist(),
            "firsts": ids.firsts.tolist(),
            "blocks": dict(seen),
        }
        write_json(path, facts_name(self._number), {"saves": saves})
        self._last = buffer.save(at, wait=False)
        return self._last


def loaded(plan: ShardPlan, shard: int, again: bool) -> Found | None:
    """Load what a shard begins with: its own last save, else what all were loaded from; None: it begins empty.

    Raises:
        StorageError: It cannot be read.
    """
    if again and plan.save_dir is not None and newest(plan.save_dir, shard) is not None:
        return _own(plan, plan.save_dir, shard)
    if plan.source is None:
        return None
    facts = read_json(plan.source, MANIFEST)
    if facts["shards"] == plan.shards:
        if newest(plan.source, shard) is None:
            _missing(plan.source, shard, facts)
            return None
        return _own(plan, plan.source, shard)
    return _gathered(plan, shard, facts)


def _missing(path: str, shard: int, facts: dict[str, Any]) -> None:
    if facts["complete"]:
        raise StorageError(message("a complete save", "none", directory(path, shard)))
    _LOG.warning("%s", event(f"Shard {shard} begins empty: it was never saved", path))


def _choices(plan: ShardPlan, lanes: int) -> dict[str, Any]:
    return {"item": plan.item, "sampler": plan.sampler, "capacity": plan.steps * lanes}


def _own(plan: ShardPlan, path: str, shard: int) -> Found:
    """Load a shard's own save."""
    at = directory(path, shard)
    lanes, ids, blocks = _facts(path, shard, plan.num_envs)
    buffer = load(at, **_choices(plan, len(lanes)))
    return buffer, ids, blocks


def _gathered(plan: ShardPlan, shard: int, facts: dict[str, Any]) -> Found | None:
    """Load a shard's lanes from the saves of another number of shards."""
    path, mine = str(plan.source), set(lanes_in(shard, plan.shards, plan.num_envs).tolist())
    paths, chosen, lanes, lives = [], [], [], []
    for old in range(facts["shards"]):
        theirs = lanes_in(old, facts["shards"], plan.num_envs).tolist()
        if mine.isdisjoint(theirs):
            continue
        if newest(path, old) is None:
            _missing(path, old, facts)
            continue
        theirs, ids, _ = _facts(path, old, plan.num_envs)
        local = [i for i, lane in enumerate(theirs) if lane in mine]
        paths.append(directory(path, old))
        chosen.append(local)
        lanes += [theirs[i] for i in local]
        lives.append((ids, local))
    if not paths:
        return None
    if len(lanes) < len(mine):
        what = f"Lanes {sorted(mine - set(lanes))[:5]} were never saved, and the number of shards changed"
        raise StorageError(event(what, path, f"load with `shards={facts['shards']}`"))
    buffer = load(paths, lanes=chosen, **_choices(plan, len(lanes)))
    return buffer, _merged(lanes, plan.num_envs, lives, stored.next_rows(buffer._core)), {}


def _merged(lanes: list[int], num_envs: int, parts: list[tuple[Ids, list[int]]], next_rows: Int64) -> Ids:
    """Merge the lives of lanes from several shards: each lane has those of its own, and none of the others."""
    known = sorted({int(life) for ids, _ in parts for life in ids.lives})
    firsts = np.empty((len(known), len(lanes)), np.int64)
    begin = 0
    for ids, local in parts:
        own, columns = ids.lives.tolist(), slice(begin, begin + len(local))
        begin += len(local)
        later = next_rows[columns]
        for at in reversed(range(len(known))):
            if known[at] in own:
                later = np.minimum(ids.firsts[own.index(known[at])][local], later)
            firsts[at, columns] = later  # of a life that the lane did not have, no row
    return Ids(np.array(lanes), num_envs, known, firsts)


def _known(path: str, shard: int, numbers: Sequence[int]) -> dict[str, Any]:
    """Return the facts of those of a shard's saves that are there, by number; nothing if the file is damaged."""
    try:
        return {str(number): facts for number, facts in saves_in(read_json(path, facts_name(shard)), numbers).items()}
    except (StorageError, KeyError, TypeError, ValueError, AttributeError):
        return {}


def _facts(path: str, shard: int, num_envs: int) -> tuple[list[int], Ids, dict[str, int]]:
    """Read lanes, lives, and the blocks of writers in a shard's newest save."""
    name, number = facts_name(shard), newest(path, shard) or 0
    try:
        facts = saves_in(read_json(path, name), [number])[number]
        lanes = [int(lane) for lane in facts["lanes"]]
        ids = Ids(np.array(lanes), num_envs, facts["lives"], np.array(facts["firsts"], np.int64))
        return lanes, ids, {str(writer): int(number) for writer, number in facts["blocks"].items()}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptionError(event(f"Damaged ({type(error).__name__}: {error})", os.path.join(path, name))) from None
