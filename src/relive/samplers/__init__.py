"""Which items are drawn. A sampler knows slots and numbers; it never sees data.

A sampler of your own has the methods of `Sampler`, and what its `index` returns those of `Index`, which takes in the
`Changes` of a `Ring` and answers with a `Draw`. `relive.testing.SamplerContract` has its tests, and
`examples/recent_sampler.py` in the source is one.
"""

from typing import TYPE_CHECKING

from .._base.extras import later
from .._ring.plans import Changes as Changes
from .._ring.ring import Ring as Ring
from ._protocol import Adopting as Adopting
from ._protocol import Carried as Carried
from ._protocol import Carrying as Carrying
from ._protocol import Divisible as Divisible
from ._protocol import Draw as Draw
from ._protocol import Index as Index
from ._protocol import Prioritizing as Prioritizing
from ._protocol import Report as Report
from ._protocol import Sampler as Sampler
from ._protocol import Share as Share
from .uniform import Uniform as Uniform

if TYPE_CHECKING:
    from .anneal import Anneal as Anneal
    from .prioritized import Prioritized as Prioritized
    from .ranked import Ranked as Ranked

__getattr__ = later(__name__, {"Anneal": ".anneal", "Prioritized": ".prioritized", "Ranked": ".ranked"})
