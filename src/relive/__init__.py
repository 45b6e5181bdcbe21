"""Experience replay for reinforcement learning.

Keep what agents lived through, draw it back by a stated rule, right at every boundary.
"""

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
from .items import Sequences as Sequences
from .items import Transitions as Transitions
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

__version__ = "0.1.0"
