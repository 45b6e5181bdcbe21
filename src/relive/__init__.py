"""Experience replay for reinforcement learning.

Store what agents experience; sample it back under an explicit distribution.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .batch import Batch as Batch
from .buffer import ReplayBuffer as ReplayBuffer
from .errors import ArgumentError as ArgumentError
from .errors import MissingExtra as MissingExtra
from .errors import NotEnoughData as NotEnoughData
from .errors import PriorityError as PriorityError
from .errors import ReliveError as ReliveError
from .errors import ReliveWarning as ReliveWarning
from .errors import SchemaError as SchemaError
from .errors import StaleId as StaleId
from .errors import StorageError as StorageError
from .items import Sequences as Sequences
from .items import Transitions as Transitions
from .items import precision_priority as precision_priority
from .items import sequence_priority as sequence_priority
from .samplers import Anneal as Anneal
from .samplers import Prioritized as Prioritized
from .samplers import Ranked as Ranked
from .samplers import Uniform as Uniform
from .schema import Field as Field
from .schema import Schema as Schema
from .stats import Stats as Stats
from .storage import Ram as Ram
from .sum_tree import SumTree as SumTree

if _TYPE_CHECKING:
    from .trajectories import Trajectory as Trajectory
    from .trajectories import TrajectoryReplayBuffer as TrajectoryReplayBuffer

# What brings SQLite in is loaded when it is used.
_LATER = {"Trajectory": "relive.trajectories", "TrajectoryReplayBuffer": "relive.trajectories"}


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return getattr(_importlib.import_module(_LATER[name]), name)
    if name == "trajectories":
        return _importlib.import_module("relive.trajectories")
    raise AttributeError(f"module `relive` has no attribute `{name}`")


__version__ = "0.1.0"
