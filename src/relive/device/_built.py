"""The parts that a device buffer is built from, as its choices want them."""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from .._base import check
from .._base.memory import available_bytes
from .._buffer.choices import Choices
from .._device_samplers import KINDS, members_of
from ..errors import ArgumentError, message
from ..items import Item, Sequences, Transitions
from ..samplers import Once
from ..schema import Schema
from ._fields import fields_of
from ._ring import LanesRing, rows_for
from ._sequences import SequenceReader
from ._transitions import TransitionReader

_MOST_ROWS = 2**31  # the successors' places are int32
_INSTEAD = 'a `ReplayBuffer` and `prefetch(n, to="torch", device=...)`'


def refuse(choices: Choices) -> None:
    """Refuse what a device buffer cannot do, naming what works instead.

    Raises:
        ArgumentError: An item or a sampler of another kind, or steps with discounts of their own.
    """
    item, kinds, without = choices.item, "use `Transitions(...)` or `Sequences(...)`", "leave `{}` out"
    refused = [
        (choices.schema.discount is not None, "schema", "a schema without `discount`", without.format("discount")),
        (type(item) not in (Transitions, Sequences), "item", "an item that a device buffer has", kinds),
        (getattr(item, "starts", 1) == "episodes" or getattr(item, "ahead", ()) or getattr(item, "trim", False),
         "item", "sequences that start at steps of chosen numbers", "leave out `starts`, `ahead` and `trim`"),
    ]  # fmt: skip
    for sampler, _ in members_of(choices.sampler):
        refused += [
            (type(sampler) is Once, "sampler", "draws that leave items there: a batch has one size, and only the device"
             " knows how many items are new", "use `Recent(...)`, which draws new ones more often"),
            (type(sampler) not in KINDS, "sampler", "a sampler that a device buffer has",
             "use `Uniform()`, `Prioritized(...)`, `Recent(...)` or a `Blend` of these"),
            (not sampler.replacement, "sampler", "draws with replacement", without.format("replacement")),
            (getattr(sampler, "newest", "") == "stored", "sampler", "`newest='largest'`", without.format("newest")),
            (getattr(sampler, "over", "") == "episodes", "sampler", "draws over steps", without.format("over")),
        ]  # fmt: skip
    for wrong, name, wanted, remedy in refused:
        if wrong:
            got = f"`{getattr(choices, name)!r}`"
            raise ArgumentError(message(wanted, got, f"DeviceBuffer({name})", f"{remedy}, or use {_INSTEAD}"))


def reader_of(ring: LanesRing, item: Item, schema: Schema) -> SequenceReader | TransitionReader:
    """Return the reader of an item."""
    if item.time_major is None:
        return TransitionReader(ring, cast(Transitions, item))
    return SequenceReader(ring, cast(Sequences, item), "first" not in schema.tree)


def generator_on(device: torch.device, seed: Any) -> torch.Generator | None:
    """Return a generator of a device; None, which is PyTorch's default one, without a seed."""
    if seed is None:
        return None
    number = check.integer(seed, "DeviceBuffer(seed)", minimum=0, unbounded=True)
    return torch.Generator(device).manual_seed(number % 2**64)


def ring_of(choices: Choices, device: torch.device) -> LanesRing:
    """Return the empty rows of a buffer."""
    fields, lanes = fields_of(choices.schema), choices.num_envs
    finals = lanes * max(math.ceil(choices.steps * choices.boundaries), 1)
    total = rows_for(fields, choices.steps, choices.window) * lanes + finals + lanes
    if total >= _MOST_ROWS:
        wanted = f"fewer than {_MOST_ROWS - finals - lanes:,} steps"
        raise ArgumentError(message(wanted, f"{choices.steps * lanes:,}", "DeviceBuffer(capacity)"))
    need, most = sum(total // f.every * f.nbytes for f in fields), available_on(device)
    if need > most:
        wanted, remedy = f"at most {most:,} bytes, the device's memory", "lower `capacity`, or store smaller fields"
        raise ArgumentError(message(wanted, f"about {need:,} bytes", "DeviceBuffer(capacity)", remedy))
    repeats = choices.sampler.prioritizes or any(field.writable for field in fields)
    return LanesRing(fields, lanes, choices.steps, choices.window, finals, repeats, device)


def unknown(name: str) -> Exception:
    """Return the error about an argument that other buffers have."""
    at = f"DeviceBuffer({name})"
    if name == "kernels":
        return ArgumentError(message("no `kernels`", "`kernels`", at, "leave it out: there is one way"))
    if name in ("limiter", "storage"):
        wanted, remedy = f"no `{name}`", "leave it out; a `ReplayBuffer` has it"
        return ArgumentError(message(wanted, f"`{name}`", at, remedy))
    return TypeError(f"DeviceBuffer got an unexpected keyword argument {name!r}")


def device_of(given: Any) -> torch.device:
    """Return the device that is meant, seen to be there and to have float64, in which strata are drawn."""
    try:
        device = torch.device(given)
        there = torch.zeros(1, dtype=torch.float64, device=device)
        there.cpu()  # `"meta"` has no numbers
    except (RuntimeError, TypeError, AssertionError) as error:
        wanted, remedy = "a device of PyTorch's that is there and has float64", 'the same works on `"cpu"`'
        why = str(error).split("\n")[0]
        raise ArgumentError(message(wanted, f"`{given!r}` ({why})", "DeviceBuffer(device)", remedy)) from None
    return there.device


def available_on(device: torch.device) -> int:
    """Return the bytes that a device has at most."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return available_bytes()
