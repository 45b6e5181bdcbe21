"""Batched trajectories `[T, B, ...]` on disk or in memory: stored whole, sampled step by step."""

from ..mixture import Mixture as Mixture
from . import _checkpoint, formats, lerobot, rlinf
from .buffer import Durability as Durability
from .buffer import TrajectoryReplayBuffer as TrajectoryReplayBuffer
from .inspection import Contents as Contents
from .inspection import Inspection as Inspection
from .inspection import contents as contents
from .inspection import inspect as inspect
from .inspection import salvage as salvage
from .inspection import verify as verify
from .lerobot import from_lerobot as from_lerobot
from .lerobot import to_lerobot as to_lerobot
from .prefetch import Prefetch as Prefetch
from .selection import Selection as Selection
from .tools import convert as convert
from .tools import extract_interventions as extract_interventions
from .tools import merge as merge
from .tools import split as split
from .trajectory import Trajectory as Trajectory

for _format in (_checkpoint.OWN, rlinf.FORMAT, lerobot.FORMAT):
    formats.register(_format)
