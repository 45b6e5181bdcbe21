"""Experience replay for reinforcement learning.

Keep what agents lived through, draw it back by a stated rule, right at every boundary.
"""

from .batch import Batch as Batch
from .buffer import ReplayBuffer as ReplayBuffer
from .items import Transitions as Transitions
from .samplers import Anneal as Anneal
from .samplers import Prioritized as Prioritized
from .samplers import Uniform as Uniform
from .schema import Field as Field
from .schema import Schema as Schema
from .stats import Stats as Stats
from .storage import Ram as Ram
from .sum_tree import SumTree as SumTree

__version__ = "0.1.0"
