"""One trajectory as the index describes it, and the name of its file."""

from __future__ import annotations

import re
from typing import NamedTuple

from ._layout import Layout, Plan, plan_of

MOST_ID = 2**53


class Entry(NamedTuple):
    """One trajectory in the index.

    Attributes:
        id: Its number, which never changes and names its file.
        length: Steps, T.
        width: Environments, B.
        layout: Its fields.
        start: Bytes of the file's header.
        bytes: Bytes of the file; of the arrays if the trajectory is only in memory.
        checksum: CRC-32 of the file's header and checksum table.
        max_episode_length: As given with the trajectory.
        model_weights_id: As given with the trajectory.
    """

    id: int
    length: int
    width: int
    layout: Layout
    start: int
    bytes: int
    checksum: int
    max_episode_length: int
    model_weights_id: str

    @property
    def plan(self) -> Plan:
        """The offsets in its file."""
        return plan_of(self.layout, self.length, self.width)


def mismatch(entry: Entry, checksum: int) -> str:
    """What to say of a valid file with another checksum than its entry's."""
    found = f"checksum {checksum:#010x}, expected {entry.checksum:#010x}"
    return f"`trajectory_{entry.id}` does not match its index entry ({found})"


def file_name(id_: int) -> str:
    """The name of a trajectory's file. It is made from the id, never read from a file."""
    return f"trajectory_{id_:012d}.safetensors"


def id_of(name: str) -> int | None:
    """The id in a trajectory file's name, None for any other name."""
    found = re.fullmatch(r"trajectory_(\d{12,})\.safetensors", name)
    return int(found[1]) if found else None
