"""Where the bytes live. A storage knows names, shapes and dtypes; it knows nothing of rings, items or samplers."""

from .._arrays import ArraySpec as ArraySpec
from .._arrays import Memory as Memory
from ._protocol import Storage as Storage
from .ram import Ram as Ram
