"""One trajectory as the index and its file's header describe it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

from .._disk import safetensors
from ._layout import FieldLayout, names_of
from ._metadata import Metadata, to_json
from ._plan import FilePlan, plan_of

FORMATS = ("relive.trajectory.1", "relive.trajectory.2")  # the second: with compressed fields
_PAGE, _WORTH_PAGES = 4096, 1 << 20  # rows of whole pages begin at one, where there are many of them
MOST_WEIGHTS = 40  # bytes of a `model_weights_id`
MOST_ID = 2**53
_MOST_INT = 2**31 - 1


class Fact(NamedTuple):
    """The limits and the storage of one fact of an entry.

    Attributes:
        column: Its column of the index.
        dtype: Its dtype in a table of entries; `S` is text in UTF-8.
        least: Its smallest value.
        most: Its largest value; of text the most bytes.
    """

    column: str
    dtype: str
    least: int
    most: int

    def check(self, *values: Any) -> None:
        """Refuse what the index cannot hold.

        Raises:
            ValueError: A value is of another type or outside the limits.
        """
        kind = str if self.dtype[0] == "S" else int
        if set(map(type, values)) != {kind}:
            raise ValueError(f"invalid `{self.column}`, not {'text' if kind is str else 'an integer'}")
        sizes = [len(value.encode()) for value in values] if kind is str else values
        for found in (min(sizes), max(sizes)):
            if not self.least <= found <= self.most:
                raise ValueError(f"invalid `{self.column}` ({found}{' bytes' * (kind is str)})"[:80])


class Entry(NamedTuple):
    """One trajectory. These facts make the columns of the index, and the dtype of a table of entries.

    Attributes:
        id: Its number, which never changes and names its file.
        length: Steps, T.
        width: Environments, B.
        layout: Its fields; in the index, and in tables, their number there.
        start: Bytes of the file's header.
        bytes: Bytes of the file; of the arrays if the trajectory is only in memory.
        checksum: CRC-32 of the file's header and checksum table.
        max_episode_length: As given with the trajectory; in the file's header, too.
        model_weights_id: Likewise.
    """

    id: Annotated[int, Fact("id", "i8", 0, MOST_ID - 1)]
    length: Annotated[int, Fact("length", "i4", 1, _MOST_INT)]
    width: Annotated[int, Fact("width", "i4", 1, _MOST_INT)]
    layout: Annotated[FieldLayout, Fact("layout", "i4", 0, 2**62)]
    start: Annotated[int, Fact("start", "i4", 1, _MOST_INT)]
    bytes: Annotated[int, Fact("bytes", "i8", 1, 2**62)]
    checksum: Annotated[int, Fact("checksum", "u4", 0, 2**32 - 1)]
    max_episode_length: Annotated[int, Fact("episode", "i4", 0, _MOST_INT)]
    model_weights_id: Annotated[str, Fact("weights", f"S{MOST_WEIGHTS}", 0, MOST_WEIGHTS)]

    @property
    def plan(self) -> FilePlan[int]:
        """The offsets in its file."""
        return plan_of(self.layout, self.length, self.width)

    @property
    def memory(self) -> int:
        """Bytes in memory, about: of what is not compressed those of the file."""
        return self.plan.nbytes + self.plan.most if self.layout.compressed else self.bytes


FACTS: Mapping[str, Fact] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Entry, include_extras=True).items()
}
IN_HEADER = "max_episode_length", "model_weights_id"  # as text


def header_of(entry: Entry, metadata: Metadata, packed: int = 0) -> bytes:
    """Lay out the header of a trajectory's file with so many bytes of frames, and with the fields that it has once."""
    layout, plan = entry.layout, entry.plan
    facts = {"format": FORMATS[bool(layout.compressed)], **{name: str(getattr(entry, name)) for name in IN_HEADER}}
    facts["shared"] = json.dumps(names_of(layout.shared))
    if layout.compressed:
        sizes = dict(zip(layout.stored, plan.steps, strict=True))
        facts["compressed"] = json.dumps(
            {"/".join(c.path): [safetensors.CODES[c.dtype], [sizes[c], entry.width, *c.shape]] for c in layout.packed}
        )
    if metadata:
        facts["metadata"] = to_json(metadata)
    head = safetensors.header(plan.tensors(packed), facts)
    for column, steps, at in zip(layout.stored, plan.steps, plan.starts, strict=True):
        paged = column.nbytes % _PAGE == 0 and steps * entry.width * column.nbytes >= _WORTH_PAGES
        gap = -(len(head) + at) % _PAGE
        if paged and column.path not in layout.compressed and gap % 64 == 0:
            return safetensors.header(plan.tensors(packed), facts, len(head) + gap)
    return head


def file_name(id_: int) -> str:
    """Return the name of a trajectory's file. It is made from the id, never read from a file."""
    return f"trajectory_{id_:012d}.safetensors"


def id_of(name: str) -> int | None:
    """Return the id in a trajectory file's name, None for any other name."""
    found = re.fullmatch(r"trajectory_(\d{12,})\.safetensors", name)
    return int(found[1]) if found else None
