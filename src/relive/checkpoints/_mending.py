"""A damaged save as it can still be used: without the steps that cannot be read, and cut where they were.

Nothing that can be drawn afterwards differs from what could be drawn before. So a stream ends before a gap, items that
reached into the gap do not start any more, and the stream behind it begins when all older frames are known again.
"""

from __future__ import annotations

import zlib

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Bool
from .._disk.files import Folder
from .._ring.lanes import CUTS, HELD, STEP
from .._ring.plans import Window
from .._ring.recount import drop_rows, steps_in
from ..errors import StorageError
from ..items._columns import lookback_of
from . import _manifest
from ._lane import Lane
from ._manifest import File, damaged
from ._reading import OpenSave
from ._saving import Part
from ._snapshot import name_of
from ._steps import RANGES, in_units
from ._tensors import TensorReader


class Readable(Frozen):
    """The rows of a lane that can be read.

    Attributes:
        lost: bool, one for each row: a value in it is damaged.
        blind: Likewise, for its observation.
    """

    lost: Bool
    blind: Bool


class Mended(OpenSave):
    """A save without what is damaged in its files of steps; manifest and small arrays have to be sound.

    Attributes:
        problems: What could not be read.
        lost: How many steps each lane has lost.
        stored: How many it had.
    """

    def __init__(self, folder: Folder, number: int) -> None:
        self.problems: list[str] = []
        self._damage: dict[str, list[int]] = {}
        super().__init__(folder, number)
        older = lookback_of(self.schema)
        before = [steps_in(lane.marks) for lane in self.lanes]
        self.lanes = [
            mended(lane, found, older, self.window, len(self.lanes), self.rows)
            for lane, found in zip(self.lanes, self._readable(), strict=True)
        ]
        self.stored = before
        self.lost = [had - steps_in(lane.marks) for had, lane in zip(before, self.lanes, strict=True)]

    def _parts(self) -> list[tuple[Part, TensorReader]]:
        found = []
        for file in self.manifest.steps:
            name = _manifest.steps_name(file.number)
            try:
                reader = self._open.enter_context(self._forgiving(name, file))
                with damaged(reader.at):
                    ranges = reader.unchecked(RANGES)
                    if zlib.crc32(ranges.data) != int(reader.metadata[RANGES]):
                        raise ValueError("the ranges of rows do not match their checksum")
                    found.append((Part(file, self._checked(ranges)), reader))
                self._damage[reader.at] = list(reader.damage())
                self.problems += [f"{reader.at}, offset {offset}" for offset in self._damage[reader.at]]
            except (StorageError, OSError) as error:
                self.problems.append(str(error))
                found = [each for each in found if each[0].file != file]
        return found

    def _forgiving(self, name: str, file: File) -> TensorReader:
        return TensorReader(self._folder, name, file.nbytes, file.checksum, forgiving=True)

    def _readable(self) -> list[Readable]:
        """The rows that a sound chunk of some file has; the others are lost."""
        found = [Readable(np.zeros(len(lane.marks), bool), np.zeros(len(lane.marks), bool)) for lane in self.lanes]
        for number, column in enumerate(self.schema.columns):
            name, every = name_of(column.keys), column.field.every or 1
            begins = [lane.first // every for lane in self.lanes]
            # The unit that is still being written is beside the counters.
            units = [
                np.arange(begin, lane.head // every + 1) < lane.head // every
                for begin, lane in zip(begins, self.lanes, strict=True)
            ]
            for part, reader in self.parts:
                bad, start = reader.touched(name, self._damage[reader.at]), 0
                for lane, first, last in in_units(part.ranges, column.field.every).tolist():
                    low, end = max(first, begins[lane]), start + last - first
                    units[lane][low - begins[lane] : last - begins[lane]] = bad[start + low - first : end]
                    start = end
            for lane, begin, lost, each in zip(self.lanes, begins, units, found, strict=True):
                of_rows = lost[np.arange(lane.first, lane.head) // every - begin]
                np.logical_or(each.lost, of_rows, out=each.lost)
                if number < self.schema.num_obs:
                    np.logical_or(each.blind, of_rows, out=each.blind)
        return found


def mended(lane: Lane, found: Readable, older: int, window: Window, lanes: int, rows: int) -> Lane:
    """A lane without the steps that cannot be read.

    Args:
        lane: The lane as it was saved.
        found: What can be read of it.
        older: Older frames that observations show.
        window: That of the item.
        lanes: Lanes of the ring.
        rows: Rows of its lanes.
    """
    lost = found.blind | (found.lost & ((lane.marks & STEP) > 0))
    if not lost.any():
        return lane
    marks, counters = lane.marks.copy(), lane.counters.copy()
    counters[CUTS] += drop_rows(marks, lost, found.blind, older, window)
    if not marks[-1] & STEP:
        counters[HELD] = 0
    cut = Lane(counters, lane.first, marks, lane.kept, lane.slots).counted(window, lanes, rows)
    anchors = np.isin(np.arange(cut.first, cut.head), cut.anchors())
    slots = {name: np.where(anchors, array, np.zeros(1, array.dtype)) for name, array in lane.slots.items()}
    return Lane(cut.counters, cut.first, marks, lane.kept, slots)
