"""What is known of a buffer to other processes: arrays of its storage besides those of ring and sampler."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from .._base.arrays import ArraySpec
from .._base.frozen import Frozen
from .._base.types import Bytes
from .._buffer.choices import Choices
from .._buffer.saved_as import built, described
from .._buffer.schemas import fields_of, schema_of
from .._flow.limit import NAME as LIMITER
from .._flow.limit import SPEC as LIMITER_SPEC
from .._flow.limiter import RateLimiter
from .._ring.lanes import sizes_in
from .._ring.plans import Window
from .._ring.ring import GIVEN, TOUCHED, Ring
from ..errors import StorageError, message
from ..items import Item
from ..samplers import Sampler
from ..schema import Schema

# What the ring of such a buffer records: a reader has a sampler of its own, which may need it. Files of earlier
# versions have arrivals, too, which nothing reads; those of format 1 lack what was touched.
KEEPS = (GIVEN, TOUCHED)
_ARRIVAL = "arrival"
_KEPT = [KEEPS, (GIVEN, _ARRIVAL, TOUCHED), (GIVEN, _ARRIVAL)]
CHOICES, OWNERS, STATE, COUNTS = "about/choices", "about/owners", "about/state", "about/counts"
LIMITS = "about/limits"
# Entries of `COUNTS`, which a live view reads. The last is of one item that was drawn: the logarithm of its
# probability over that of a uniform draw, in billionths.
DRAWN, UPDATES, STALE, REDRAWN, LAST_ID, RARITY = range(6)
_STATE = 1 << 15  # bytes of one copy of the state


class BufferDescription(Frozen):
    """The choices that a buffer was built from.

    Attributes:
        schema: The fields of a step.
        lanes: How many.
        rows: Of each lane.
        steps: That each lane keeps.
        boundaries: The share of rows that is reserved for final observations.
        window: Under which the ring says which steps are drawable.
        item: What a draw of the buffer's creator expands to; None: its class is not registered here.
        sampler: Which items it draws; None likewise.
        limiter: What makes its writers and its draws wait for each other.
        keeps: What the ring records besides.
        waits: Whether its writers wait for saves; those of older files do not.
        blob: What this was decoded from, whose size says where other arrays are.
        unknown: The descriptions of item and sampler, where they are None.
    """

    schema: Schema
    lanes: int
    rows: int
    steps: int
    boundaries: float
    window: Window
    item: Item | None
    sampler: Sampler | None
    limiter: RateLimiter | None
    keeps: tuple[str, ...] = KEEPS
    waits: bool = True
    blob: bytes = b""
    unknown: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, choices: Choices) -> BufferDescription:
        """Describe a new buffer for other processes."""
        c = choices
        return cls(c.schema, c.num_envs, c.rows, c.steps, c.boundaries, c.window, c.item, c.sampler, c.limiter)

    def encoded(self) -> bytes:
        """Encode the description as JSON, after its checksum."""
        if self.blob:
            return self.blob
        facts = {
            "schema": fields_of(self.schema),
            "lanes": self.lanes,
            "rows": self.rows,
            "steps": self.steps,
            "boundaries": self.boundaries,
            "window": self.window.facts,
            "item": described(self.item),
            "sampler": described(self.sampler),
            "limiter": None if self.limiter is None else described(self.limiter),
            "keeps": self.keeps,
            "waits": self.waits,
        }
        text = json.dumps(facts).encode()
        return zlib.crc32(text).to_bytes(4, "little") + text

    @classmethod
    def decoded(cls, blob: bytes, at: str) -> BufferDescription:
        """Decode a description that `encoded` returned.

        Raises:
            StorageError: It is damaged.
        """
        try:
            if zlib.crc32(blob[4:]) != int.from_bytes(blob[:4], "little"):
                raise ValueError("another checksum")
            facts = json.loads(blob[4:])
            lanes, sizes, window = facts["lanes"], sizes_in(facts), Window(**facts["window"])
            numbers = (lanes, window.span, window.starts + 1, window.lookback + 1)
            if not all(type(number) is int and 0 < number < 2**62 for number in numbers):
                raise ValueError("numbers out of range")
            item, sampler = built("item", facts["item"]), built("sampler", facts["sampler"])
            limiter = None if facts["limiter"] is None else built("limiter", facts["limiter"])
            keeps = tuple(facts.get("keeps", (GIVEN, _ARRIVAL)))
            waits = facts.get("waits", False)
            if keeps not in _KEPT or type(waits) is not bool or (waits and TOUCHED not in keeps):
                raise ValueError("a ring that records something else")
            unknown = {what: facts[what] for what, made in (("item", item), ("sampler", sampler)) if made is None}
            schema, blob = schema_of(facts["schema"]), bytes(blob)
            return cls(schema, lanes, *sizes, window, item, sampler, limiter, keeps, waits, blob, unknown)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(message("what a buffer was built from", f"`{error}`", at)) from None

    def ring_spec(self) -> dict[str, ArraySpec]:
        """Return the specs of the ring's arrays."""
        arrays = Ring.spec(self.schema, self.window, self.lanes, self.rows, self.keeps)
        limits = {} if self.limiter is None else {LIMITER: LIMITER_SPEC}
        return {f"ring/{name}": wanted for name, wanted in arrays.items()} | limits

    def spec(self) -> dict[str, ArraySpec]:
        """Return the specs of further arrays: this text, each lane's writer process, the last `sync`'s state, counts.

        The last is how far writers may go while the buffer is saved.
        """
        text, numbers = np.dtype(np.uint8), np.dtype(np.int64)
        limits = {LIMITS: ArraySpec((self.lanes,), numbers)} if self.waits else {}
        return {
            CHOICES: ArraySpec((len(self.encoded()),), text),
            OWNERS: ArraySpec((self.lanes,), numbers),
            STATE: ArraySpec((2, _STATE), text),
            COUNTS: ArraySpec((8,), numbers),
            **limits,
        }


class StateFile:
    """Facts as JSON in one of two places, so that a kill in the middle leaves the ones before."""

    def __init__(self, places: Bytes) -> None:
        self._places = places

    def write(self, facts: dict[str, Any]) -> None:
        """Replace the older of the two."""
        number, _ = self._newest()
        text = json.dumps(facts).encode()
        if len(text) > _STATE - 16:
            raise ValueError("too long")
        place = self._places[(number + 1) % 2]
        place[:16] = 0
        place[16 : 16 + len(text)] = np.frombuffer(text, np.uint8)
        head = np.array([number + 1, len(text) << 32 | zlib.crc32(text)], np.uint64)
        place[:16] = head.view(np.uint8)

    def read(self) -> dict[str, Any] | None:
        """Return the newest state, or None."""
        return self._newest()[1]

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        found: tuple[int, dict[str, Any] | None] = (0, None)
        for place in self._places:
            number, checked = place[:16].view(np.uint64).tolist()
            text = place[16 : 16 + (checked >> 32)].tobytes()
            if number > found[0] and zlib.crc32(text) == checked & 0xFFFFFFFF:
                found = (number, json.loads(text))
        return found
