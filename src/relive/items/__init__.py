"""What one draw expands to. An item turns slots into storage rows; a sampler chooses the slots."""

from ._protocol import Item as Item
from .sequence_priority import sequence_priority as sequence_priority
from .sequences import Sequences as Sequences
from .transitions import Transitions as Transitions
