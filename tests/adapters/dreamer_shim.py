"""A plugin for pytest: DreamerV3's own tests of its replay, on examples/dreamer_replay.py."""

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace as Names
from typing import Any

import numpy as np
from dreamer_replay import Replay


class Tested(Replay):
    """The replay with any names of workers, `dataset`, and files of the original's chunks, as the tests use it."""

    def __init__(self, length: int, capacity: int, directory: Any = None, chunksize: int = 1024, **given: Any) -> None:
        self.folder, self.chunksize, self.guard = Path(str(directory)), chunksize, threading.Lock()
        self.lanes, self.early = {}, []  # steps that come before it is clear how many workers there are
        super().__init__(length, capacity, directory and self.folder / "relive", seed=given.get("seed", 0))

    def add(self, step: Any, worker: Any = 0) -> None:
        with self.guard:
            lane = self.lanes.setdefault(worker, len(self.lanes))
            if self.early is not None:
                return self.early.append((step, lane))
        super().add(step, lane)

    def begin(self) -> None:
        with self.guard:
            early, self.early, self.workers = self.early or [], None, len(self.lanes) or 1
            any(super(Tested, self).add(*step) for step in early)

    def __len__(self) -> int:
        self.begin()
        return super().__len__()

    def dataset(self, batch: int) -> Any:
        while self.early is not None and len(self.early) < self.length * len(self.lanes):
            time.sleep(0.001)
        while True:
            if len(self):
                yield self.sample(batch)

    def save(self) -> None:
        """Save, and write the steps that sequences need as chunks, which the original loads."""
        self.begin()
        super().save()
        ids, most = self.buffer.column("ids"), -(-self.capacity // self.workers) + self.length - 1
        for lane, known in enumerate(ids):
            places = np.argsort(known)[-min((known >= 0).sum(), most) :]
            chunks = known[places] // len(ids) // self.chunksize
            for number in np.unique(chunks).tolist():
                part, key = places[chunks == number], number * len(ids) + lane + 1
                file = self.folder / f"{number:09}-{key}-{key + len(ids)}-{len(part)}.npz"
                steps = {k: self.buffer.column(f"data.{k}")[lane, part] for k in self.buffer.schema.tree["data"]}
                np.savez_compressed(file, stepid=np.zeros((len(part), 20), np.uint8), **steps)


sys.modules.update(elements=Names(UUID=Names(reset=dict), Path=Path), embodied=Names(replay=Names(Replay=Tested)))
