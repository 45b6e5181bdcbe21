"""What one draw expands to. An item turns slots into storage rows; a sampler chooses the slots."""

from .._memory import Arena as Arena
from .._plans import Window as Window
from .._ring import Ring as Ring
from ._protocol import Expander as Expander
from ._protocol import Fields as Fields
from ._protocol import Item as Item
from .precision_priority import precision_priority as precision_priority
from .sequence_priority import sequence_priority as sequence_priority
from .sequences import Sequences as Sequences
from .transitions import Transitions as Transitions
