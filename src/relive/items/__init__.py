"""What one draw expands to. An item turns places into rows of the storage; it never chooses them."""

from ._protocol import Item as Item
from .transitions import Transitions as Transitions
