"""Which items are drawn. A sampler knows slots and numbers; it never sees data.

A sampler of your own inherits from `Sampler`, and its index from `Index`, which takes in the `Changes` of a `Ring` and
answers with a `Draw`. What it leaves out has the protocol's default. `relive.saved_as` names it in saves,
`relive.testing.SamplerContract` has its tests, and `examples/own_sampler.py` in the source is one.
"""

from typing import TYPE_CHECKING, Any

from .._base.extras import later
from .._ring.plans import Changes as Changes
from .._ring.ring import Ring as Ring
from ._protocol import Carried as Carried
from ._protocol import Draw as Draw
from ._protocol import Index as Index
from ._protocol import Report as Report
from ._protocol import Sampler as Sampler
from ._protocol import Share as Share
from .uniform import Uniform as Uniform

if TYPE_CHECKING:
    from .anneal import Anneal as Anneal
    from .blend import Blend as Blend
    from .once import Once as Once
    from .prioritized import Prioritized as Prioritized
    from .recent import Recent as Recent

# Samplers of earlier versions, and what has taken their place.
GONE = {"Ranked": "`relive.Prioritized`, or the sampler of `examples/ranked_sampler.py`"}
_load = later(
    __name__,
    {
        "Anneal": ".anneal",
        "Blend": ".blend",
        "Once": ".once",
        "Prioritized": ".prioritized",
        "Recent": ".recent",
    },
)


def __getattr__(name: str) -> Any:
    if name in GONE:
        raise AttributeError(f"relive.samplers.{name} is gone: use {GONE[name]}")
    return _load(name)
