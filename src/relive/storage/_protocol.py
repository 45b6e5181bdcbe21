"""The protocol of storages and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from .._base.arrays import ArraySpec, Memory


class Storage(Protocol):
    """The frozen description of where the bytes live."""

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> Memory:
        """Return an array for every name of `spec`: new ones, or those that an earlier buffer left there.

        Args:
            spec: Shape and dtype of each array. Names begin with `ring/` (arrays that all processes of a buffer may
                share, one writer a lane) or `sampler/` (arrays of the process that draws).
            identity: A digest of the schema, the sizes, the item's window and the sampler, which decide what the arrays
                mean. Arrays that were left with another identity are refused.

        Raises:
            ArgumentError: The arrays cannot fit; nothing has been reserved.
            StorageError: What was found belongs to another buffer, or is damaged.
        """


@runtime_checkable
class Joint(Storage, Protocol):
    """A storage whose arrays other processes can open while this one has them; it opens a `JointMemory`."""

    @property
    def address(self) -> str:
        """The name or the path by which they open it."""

    @property
    def file(self) -> str:
        """The file that has the arrays."""
