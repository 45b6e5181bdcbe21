"""`DeviceBuffer` as a line, as a table of a notebook, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .._base import page
from .._buffer.arguments import readable

if TYPE_CHECKING:
    from .._buffer.stats import Stats


class Described(Protocol):
    """A buffer, as far as its description goes."""

    item: Any
    sampler: Any
    device: Any
    num_envs: int

    @property
    def capacity(self) -> int:
        """The most steps that are stored."""

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""

    def __len__(self) -> int: ...

    def stats(self) -> Stats:
        """Return a snapshot of what happened."""


def named(buffer: Described) -> str:
    """Compose the line."""
    choices = f"{buffer.item!r}, {buffer.sampler!r}, {str(buffer.device)!r}"
    steps = f"{len(buffer)} of {buffer.capacity} steps, num_envs={buffer.num_envs}"
    return f"DeviceBuffer({steps}, {choices}, {readable(buffer.nbytes)})"


def shown(buffer: Described) -> str:
    """Compose the table."""
    return page.fragment("DeviceBuffer", (), _facts(buffer))


def written(buffer: Described, path: object) -> str:
    """Write the page, and return its absolute path."""
    text = page.plain("Device buffer", _facts(buffer), buffer.stats().flat().items())
    return page.write(path, "DeviceBuffer.report(path)", text)


def _facts(buffer: Described) -> list[tuple[str, str]]:
    named = {"item": buffer.item, "sampler": buffer.sampler, "device": buffer.device}
    steps = [("steps", f"{len(buffer):,} of {buffer.capacity:,}"), ("environments", f"{buffer.num_envs:,}")]
    return steps + [(name, str(choice)) for name, choice in named.items()]
