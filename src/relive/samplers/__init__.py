"""Which items are drawn. A sampler knows places and numbers; it never sees data."""

from ._protocol import Index as Index
from ._protocol import Sampler as Sampler
from .anneal import Anneal as Anneal
from .prioritized import Prioritized as Prioritized
from .ranked import Ranked as Ranked
from .uniform import Uniform as Uniform
