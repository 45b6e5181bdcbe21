"""A damaged save as it can still be used: without the steps that cannot be read, and cut where they were.

Nothing that can be drawn afterwards differs from what could be drawn before. So a stream ends before a gap, items that
reached into the gap do not start any more, and the stream behind it begins when all older frames are known again.
"""

from __future__ import annotations

import zlib

import numpy as np

from .._base.check import distinct
from .._base.types import Bool
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._disk.tensors import TensorReader
from .._ring.lanes import CUTS, HELD, STEP
from .._ring.plans import Window
from .._ring.recount import StoredMarks, drop_rows, steps_in
from ..errors import StorageError
from ..items._columns import lookback_of
from . import _manifest
from ._lanes import Lanes
from ._manifest import File
from ._reading import OpenSave, unread
from ._save_task import StepsFile
from ._steps import RANGES, in_units, since


class Mended(OpenSave):
    """A save without what is damaged in its files of steps; manifest and small arrays have to be sound.

    Attributes:
        problems: What could not be read.
        lost: How many steps each lane has lost, int64 `[L]`.
        stored: How many it had, `[L]`.
    """

    def __init__(self, folder: Folder, number: int) -> None:
        self.problems: list[str] = []
        self._damage: dict[str, list[int]] = {}
        super().__init__(folder, number)
        older = lookback_of(self.schema)
        self.stored = steps_in(self.lanes.stored)
        self.lanes = mended(self.lanes, *self._readable(), older, self.window, self.rows)
        self.lost = self.stored - steps_in(self.lanes.stored)

    def _parts(self) -> list[tuple[StepsFile, TensorReader]]:
        found = []
        for file in self.manifest.steps:
            name = _manifest.steps_name(file.number)
            try:
                reader = self._open.enter_context(self._forgiving(name, file))
                with damaged(reader.at):
                    ranges = reader.unchecked(RANGES)
                    if zlib.crc32(ranges.data) != int(reader.metadata[RANGES]):
                        raise ValueError("the ranges of rows do not match their checksum")
                    found.append((StepsFile(file, self._checked(ranges)), reader))
                for column in self.kept:
                    self.entries_of(*found[-1], column)  # refuses what the schema does not say
                self._damage[reader.at] = list(reader.damage())
                self.problems += [f"{reader.at}, offset {offset}" for offset in self._damage[reader.at]]
            except (StorageError, OSError) as error:
                self.problems.append(str(error))
                found = [each for each in found if each[0].file != file]
        return found

    def _forgiving(self, name: str, file: File) -> TensorReader:
        return TensorReader(self._folder, name, file.nbytes, file.checksum, forgiving=True)

    def _readable(self) -> tuple[Bool, Bool]:
        """Mark the rows that are damaged in some file, and those among them without readable observations."""
        lanes = self.lanes
        lost, blind = np.zeros((2, len(lanes.marks)), bool)
        lane_of_row, rows = lanes.rows()
        for number, column in enumerate(self.schema.columns):
            if column not in self.kept:  # beside the counters, which are sound
                continue
            every = column.field.every or 1
            begin, end = lanes.first // every, lanes.head // every
            ends = np.cumsum(end + 1 - begin)
            offset = ends - (end + 1)  # where the unit 0 of a lane would be
            units = np.ones(ends[-1], bool)
            units[offset + end] = False  # the unit that is still being written is beside the counters
            for part, reader in self.parts:
                bad = self.entries_of(part, reader, column).lost(self._damage[reader.at])
                if bad.any() and column.field.compress is not None:
                    self.problems.append(unread(reader, column, bad))
                lane, unit, at = since(in_units(part.ranges, column.field.every), begin)
                units[offset[lane] + unit] = bad[at]
            of_rows = units[offset[lane_of_row] + rows // every]
            lost |= of_rows
            if number < self.schema.num_obs:
                blind |= of_rows
        return lost, blind


def mended(lanes: Lanes, lost: Bool, blind: Bool, older: int, window: Window, rows: int) -> Lanes:
    """Drop from lanes the steps that cannot be read.

    Args:
        lanes: The lanes as they were saved.
        lost: bool, one for each row: a value in it is damaged.
        blind: Likewise, for its observation.
        older: Older frames that observations show.
        window: That of the item.
        rows: Rows of a lane of the ring.
    """
    lost = blind | (lost & ((lanes.marks & STEP) > 0))
    lane_of_row, _ = lanes.rows()
    changed = distinct(lane_of_row[lost])
    marks, counters = lanes.marks.copy(), lanes.counters.copy()
    for lane in changed.tolist():
        of_lane = slice(lanes.stored.begin[lane], lanes.stored.end[lane])
        counters[lane, CUTS] += drop_rows(marks[of_lane], lost[of_lane], blind[of_lane], older, window)
        if not marks[of_lane][-1] & STEP:
            counters[lane, HELD] = 0
    stored = StoredMarks.of(marks, lanes.first, lanes.head)
    cut = Lanes(counters, stored, lanes.given, lanes.slots).counted(window, len(lanes), rows)
    counters[changed] = cut.counters[changed]
    cleared = np.isin(lane_of_row, changed)
    cleared[cut.drawable()] = False
    slots = {name: np.where(cleared, np.zeros(1, array.dtype), array) for name, array in lanes.slots.items()}
    return Lanes(counters, stored, lanes.given, slots)
