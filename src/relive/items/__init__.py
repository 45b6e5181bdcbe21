"""What one draw expands to. An item turns places into rows of the storage; it never chooses them."""

from ._protocol import Item as Item
from .sequence_priority import sequence_priority as sequence_priority
from .sequences import Sequences as Sequences
from .transitions import Transitions as Transitions
