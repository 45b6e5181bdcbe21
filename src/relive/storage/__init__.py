"""Where the bytes live. A storage sees names, shapes and dtypes only, not rings, items or samplers.

A storage of your own has the method of `Storage`: it gets an `ArraySpec` for each name and returns a `Memory`, which
goes when the buffer does; nothing is called to close it. `relive.testing.StorageContract` has its tests.
"""

from typing import TYPE_CHECKING

from .._base.arrays import ArraySpec as ArraySpec
from .._base.arrays import Memory as Memory
from .._base.extras import later
from .ram import Ram as Ram

if TYPE_CHECKING:
    from ._protocol import Joint as Joint
    from ._protocol import Storage as Storage
    from .mapped import Mapped as Mapped
    from .shared import Shared as Shared

__getattr__ = later(
    __name__, {"Joint": "._protocol", "Storage": "._protocol", "Mapped": ".mapped", "Shared": ".shared"}
)
