"""A device buffer as an ordinary one, and back: the same arrays, copied by their names."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch

from .._base.arrays import ArraySpec, Memory
from .._base.types import Array
from .._buffer.choices import Choices
from .._buffer.core import Core, opened
from .._ring.lanes import HEAD, OLDEST, READY, STEP, first_rows, ranges
from ..buffer import ReplayBuffer
from ..checkpoints._snapshot import Facts, restore
from ..storage import Ram
from ._random import philox_of
from ._state import ANCHORS_SEEN, DRAWN, SEEN, STALE, UPDATED, State

_COUNTS = {"drawn": DRAWN, "updates": UPDATED, "stale_updates": STALE}


def to_host(choices: Choices, state: State, last: tuple[Array, Array], *, values: bool = True) -> ReplayBuffer:
    """An ordinary buffer in RAM with copies of the arrays, which draws on as the device would.

    Args:
        choices: What the buffer is built from.
        state: The tensors.
        last: Ids and weights of the last batch.
        values: Whether the steps' fields are copied; without them the buffer is good for its counts.
    """
    left = () if values else state.columns
    arrays = {name: tensor.cpu().numpy() for name, tensor in state.arrays().items() if name not in left}
    counters = arrays["ring/counters"]

    def fill(spec: Mapping[str, ArraySpec], memory: Memory) -> bool:
        for name, array in arrays.items():
            to = memory.host(name)
            to.reshape(-1).view(np.uint8)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for name in (SEEN, ANCHORS_SEEN):
            if name in spec:
                memory.host(name)[...] = counters[:, [OLDEST, READY, HEAD]]
        return False

    rng = np.random.Generator(philox_of(state.key, state.position))
    core = opened(choices, Ram(), rng, fill)
    core.writer.resume()
    flags = state.flags.cpu().tolist()
    restore(core, Facts(rng, {name: flags[number] for name, number in _COUNTS.items()} | {"slow_adds": 0}, *last))
    return ReplayBuffer._of(core)


def of_host(buffer: ReplayBuffer) -> ReplayBuffer:
    """The buffer itself where its arrays are this process's own, else a copy in RAM."""
    return buffer if type(buffer.storage) is Ram else copy.copy(buffer)


def fill(state: State, core: Core) -> None:
    """Copy the arrays of an ordinary buffer to the tensors; the caller has its lock."""
    core.refresh()
    for name, tensor in state.arrays().items():
        array = np.ascontiguousarray(core.memory.memory.host(name)).reshape(-1).view(np.uint8)
        tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array))
    for name, number in _COUNTS.items():
        state.flags[number] = core.tally.counts()[name]


def longest_run(core: Core) -> int:
    """The most rows without a step that follow each other in a lane."""
    lanes, rows = ranges(first_rows(core.ring.counters, core.ring.rows), core.ring.counters[:, HEAD])
    step = (core.ring.marks[core.ring.at(rows, lanes)] & STEP) > 0
    begins = np.flatnonzero(step | (np.diff(lanes, prepend=-1) != 0))
    return int(np.diff(begins, append=len(lanes)).max(initial=1))
