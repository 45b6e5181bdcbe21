"""Where the bytes live. A storage sees names, shapes and dtypes only, not rings, items or samplers."""

from .._arrays import ArraySpec as ArraySpec
from .._arrays import Memory as Memory
from ._protocol import Storage as Storage
from .ram import Ram as Ram
