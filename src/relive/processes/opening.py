"""Opening the arrays of a buffer: for this process alone, or for others, too."""

from __future__ import annotations

import numpy as np

from .._base.forks import importing
from .._buffer.choices import Choices
from .._buffer.core import Core
from .._buffer.wiring import Fill, alone
from ..storage import Joint, Ram, Storage


def opened(choices: Choices, storage: Storage, rng: np.random.Generator, fill: Fill | None = None) -> Core:
    """Wire the core of a buffer whose arrays `storage` opens; the arguments are those of `alone`."""
    if type(storage) is Ram or not isinstance(storage, Joint):
        return alone(choices, storage, rng, fill)
    with importing:
        from .joint import founded

    return founded(choices, storage, rng, fill)
