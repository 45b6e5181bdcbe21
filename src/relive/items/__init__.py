"""What one draw expands to. An item turns slots into storage rows; a sampler chooses the slots."""

from typing import TYPE_CHECKING

from .._extras import later
from .._memory import Arena as Arena
from .._plans import Window as Window
from .._ring import Ring as Ring
from .transitions import Transitions as Transitions

if TYPE_CHECKING:
    from ._precision_priority import precision_priority as precision_priority
    from ._protocol import Expander as Expander
    from ._protocol import Fields as Fields
    from ._protocol import Item as Item
    from ._sequence_priority import sequence_priority as sequence_priority
    from .hindsight import Hindsight as Hindsight
    from .sequences import Sequences as Sequences

__getattr__ = later(
    __name__,
    {
        "Expander": "._protocol",
        "Fields": "._protocol",
        "Hindsight": ".hindsight",
        "Item": "._protocol",
        "Sequences": ".sequences",
        "precision_priority": "._precision_priority",
        "sequence_priority": "._sequence_priority",
    },
)
