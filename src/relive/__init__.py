"""Experience replay for reinforcement learning.

Store what agents experience; sample it back under an explicit distribution. A first buffer:

    import relive
    from relive.gymnasium import Recorder

    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    buffer = relive.ReplayBuffer(schema, 100_000, num_envs=envs.num_envs, sampler=relive.Prioritized())
    envs = Recorder(envs, buffer)  # stores each step of `envs.step`
    batch = buffer.sample(256).torch()
    buffer.update_priorities(batch.ids, td_error)

`relive.sb3.ReplayBuffer` is a `replay_buffer_class` of Stable-Baselines3; `relive doctor` tests the buffer you have.
The pages are in the folder `docs` of the source.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._base.extras import later as _later
from ._base.forks import importing as _importing
from ._buffer.stats import Stats as Stats
from ._ring.plans import Followed as Followed
from .batch import Batch as Batch
from .buffer import ReplayBuffer as ReplayBuffer
from .errors import ArgumentError as ArgumentError
from .errors import BufferClosed as BufferClosed
from .errors import CorruptionError as CorruptionError
from .errors import MissingExtra as MissingExtra
from .errors import MissingSave as MissingSave
from .errors import NotEnoughData as NotEnoughData
from .errors import PriorityError as PriorityError
from .errors import RateLimitTimeout as RateLimitTimeout
from .errors import ReliveError as ReliveError
from .errors import ReliveWarning as ReliveWarning
from .errors import SchemaError as SchemaError
from .errors import StaleId as StaleId
from .errors import StorageError as StorageError
from .items import Transitions as Transitions
from .samplers import GONE as _GONE_SAMPLERS
from .samplers import Uniform as Uniform
from .schema import Field as Field
from .schema import Schema as Schema
from .storage import Ram as Ram

if _TYPE_CHECKING:
    from . import doctor as doctor
    from . import gymnasium as gymnasium
    from . import lerobot as lerobot
    from . import minari as minari
    from . import ray as ray
    from . import reward_noise as reward_noise
    from . import sb3 as sb3
    from . import simulators as simulators
    from . import tianshou as tianshou
    from . import torchrl as torchrl
    from . import trajectories as trajectories
    from ._buffer.kept import KeptBatch as KeptBatch
    from ._buffer.kept import kept_batches as kept_batches
    from ._buffer.saved_as import saved_as as saved_as
    from ._flow.limiter import RateLimiter as RateLimiter
    from ._opening import load as load
    from ._opening import open as open
    from .checkpoints._saved import Saved as Saved
    from .checkpoints.autosave import Autosave as Autosave
    from .device import DeviceBuffer as DeviceBuffer
    from .items import Hindsight as Hindsight
    from .items import Sequences as Sequences
    from .items import Windows as Windows
    from .items import precision_priority as precision_priority
    from .items import sequence_priority as sequence_priority
    from .mixture import Mixture as Mixture
    from .processes.writer import Writer as Writer
    from .samplers import Anneal as Anneal
    from .samplers import Blend as Blend
    from .samplers import Once as Once
    from .samplers import Prioritized as Prioritized
    from .samplers import Recent as Recent
    from .storage import Mapped as Mapped
    from .storage import Shared as Shared
    from .sum_tree import SumTree as SumTree
    from .trajectories import Trajectory as Trajectory
    from .trajectories import TrajectoryReplayBuffer as TrajectoryReplayBuffer

# Loaded when they are used: what a first buffer does not need, and what brings SQLite in.
_LATER = {
    "Anneal": ".samplers",
    "Autosave": ".checkpoints.autosave",
    "Blend": ".samplers",
    "DeviceBuffer": ".device",
    "Hindsight": ".items",
    "KeptBatch": "._buffer.kept",
    "Mapped": ".storage",
    "Mixture": ".mixture",
    "Once": ".samplers",
    "Prioritized": ".samplers",
    "RateLimiter": "._flow.limiter",
    "Recent": ".samplers",
    "Sequences": ".items",
    "Windows": ".items",
    "Saved": ".checkpoints._saved",
    "Shared": ".storage",
    "SumTree": ".sum_tree",
    "Trajectory": ".trajectories",
    "TrajectoryReplayBuffer": ".trajectories",
    "Writer": ".processes.writer",
    "kept_batches": "._buffer.kept",
    "load": "._opening",
    "open": "._opening",
    "precision_priority": ".items",
    "saved_as": "._buffer.saved_as",
    "sequence_priority": ".items",
}
# So that `relive.sb3.ReplayBuffer` needs no import but relive's, and what has to be installed for each.
_MODULES = {
    "doctor": "",
    "gymnasium": "gymnasium",
    "lerobot": "torch",
    "minari": "",
    "ray": "ray",
    "reward_noise": "",
    "sb3": "stable_baselines3",
    "simulators": "torch",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
    "trajectories": "",
}
# Names of earlier versions, and what has taken their place.
_GONE = {"cpprb": "relive.ReplayBuffer: docs/switch.md has cpprb's arguments beside its own", **_GONE_SAMPLERS}
# What other libraries call their classes.
_ELSEWHERE = {
    "PrioritizedReplayBuffer": "sampler=relive.Prioritized()",
    "PrioritizedReplay": "sampler=relive.Prioritized()",
    "NStepReplayBuffer": "item=relive.Transitions(n_step=3)",
    "SequenceReplayBuffer": "item=relive.Sequences(length=80)",
    "EpisodeReplayBuffer": "item=relive.Sequences(length=80)",
    "HerReplayBuffer": "item=relive.Hindsight(reward=...)",
}
_load = _later(__name__, _LATER)


def __getattr__(name: str) -> _Any:
    if name in _GONE:
        raise AttributeError(f"relive.{name} is gone: use {_GONE[name]}")
    if name in _ELSEWHERE:
        made = f"relive.ReplayBuffer(schema, capacity, {_ELSEWHERE[name]})"
        raise AttributeError(f"relive has no {name}: use `{made}`")
    with _importing:
        return _importlib.import_module(f".{name}", __name__) if name in _MODULES else _load(name)


# For `from relive import *`, which neither imports SQLite nor PyTorch, nor puts modules in the place of a caller's
# `buffer` or `batch`.
_SLOW = (".trajectories", ".device")
_OWN = [name for name, value in globals().items() if name[0] != "_" and not isinstance(value, type(_importlib))]
__all__ = _OWN + [name for name, module in _LATER.items() if module not in _SLOW]


def __dir__() -> list[str]:
    """List the public names, and the integrations whose library is installed."""
    from importlib.util import find_spec

    modules = [name for name, library in _MODULES.items() if not library or find_spec(library) is not None]
    return sorted({*_OWN, *_LATER, *modules, "errors", "__doc__", "__file__", "__name__", "__path__", "__version__"})


__version__ = "0.3.0"
