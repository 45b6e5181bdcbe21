"""What one draw expands to. An item turns slots into storage rows; a sampler chooses the slots.

An item of your own inherits from `Item`, and what its `bind` returns has the method of `Expander`. See `Ring` and
`Windowed` for what they work with, `relive.testing.ItemContract` for its tests, and `examples/own_item.py` in the
source for one that saves know by name. A class that inherits from nothing will do, too:

>>> import dataclasses
>>> import numpy as np
>>> import relive
>>> @dataclasses.dataclass(frozen=True)
... class Rewards:
...     "Each step's reward, and whether its episode ended there."
...     def window(self, schema):
...         return Window(span=1)
...     def check(self, schema, steps):
...         pass
...     def bind(self, schema, ring, arena):
...         return BoundRewards(ring)
>>> class BoundRewards:
...     def __init__(self, ring):
...         self.ring, self.discounts = ring, np.array([1.0, 0.9], np.float32)
...     def expand(self, slots, rng):
...         found = self.ring.windows(slots, self.discounts)
...         return {"reward": self.ring.reward[found.at], "ended": found.terminated, "ids": found.ids}
>>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
>>> buffer = relive.ReplayBuffer(schema, 10, item=Rewards(), seed=0)
>>> _ = buffer.add(obs=0.0, action=1.0, reward=5.0, next_obs=1.0, terminated=True, truncated=False)
>>> batch = buffer.sample(2)
>>> batch.reward.tolist(), batch.ended.tolist(), batch.weights.tolist()
([5.0, 5.0], [True, True], [1.0, 1.0])
"""

from typing import TYPE_CHECKING

from .._base.extras import later
from .._base.memory import Arena as Arena
from .._ring.plans import Window as Window
from .._ring.plans import Windowed as Windowed
from .._ring.ring import Ring as Ring
from .transitions import Transitions as Transitions

if TYPE_CHECKING:
    from ._precision_priority import precision_priority as precision_priority
    from ._protocol import Expander as Expander
    from ._protocol import Fields as Fields
    from ._protocol import Item as Item
    from ._protocol import View as View
    from ._sequence_priority import sequence_priority as sequence_priority
    from .hindsight import Hindsight as Hindsight
    from .sequences import Sequences as Sequences
    from .windows import Windows as Windows

__getattr__ = later(
    __name__,
    {
        "Expander": "._protocol",
        "Fields": "._protocol",
        "Hindsight": ".hindsight",
        "Item": "._protocol",
        "View": "._protocol",
        "Sequences": ".sequences",
        "Windows": ".windows",
        "precision_priority": "._precision_priority",
        "sequence_priority": "._sequence_priority",
    },
)
