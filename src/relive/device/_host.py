"""An ordinary buffer as a device buffer: the same arrays, copied by their names."""

from __future__ import annotations

import copy

import numpy as np
import torch

from .._buffer.core import Core
from .._ring.lanes import HEAD, STEP, first_rows, ranges
from ..buffer import ReplayBuffer
from ..storage import Ram
from ._state import State
from ._twin import COUNTS


def of_host(buffer: ReplayBuffer) -> ReplayBuffer:
    """The buffer itself where its arrays are this process's own, else a copy in RAM."""
    return buffer if type(buffer.storage) is Ram else copy.copy(buffer)


def fill(state: State, core: Core) -> None:
    """Copy the arrays of an ordinary buffer to the tensors; the caller has its lock."""
    core.refresh()
    for name, tensor in state.arrays().items():
        array = np.ascontiguousarray(core.memory.memory.host(name)).reshape(-1).view(np.uint8)
        tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array))
    for name, number in COUNTS.items():
        state.flags[number] = core.tally.counts()[name]


def longest_run(core: Core) -> int:
    """The most rows without a step that follow each other in a lane."""
    lanes, rows = ranges(first_rows(core.ring.counters, core.ring.rows), core.ring.counters[:, HEAD])
    step = (core.ring.marks[core.ring.at(rows, lanes)] & STEP) > 0
    begins = np.flatnonzero(step | (np.diff(lanes, prepend=-1) != 0))
    return int(np.diff(begins, append=len(lanes)).max(initial=1))
