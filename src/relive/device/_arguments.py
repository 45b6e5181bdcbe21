"""What the calls of a device buffer are given, checked by shape, dtype and device: these are known without a wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .._base.nests import paths
from .._buffer.choices import Choices
from ..errors import ArgumentError, message
from ..items import Sequences, Transitions
from ..samplers import Prioritized, Uniform
from ._layout import Layout, Part
from ._ops_write import Step

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse(choices: Choices) -> None:
    """Refuse what a device buffer cannot do, naming what works instead.

    Raises:
        ArgumentError: An item or a sampler of another kind, or steps with discounts of their own.
    """
    item, sampler = choices.item, choices.sampler
    if choices.schema.discount is not None:
        wanted, remedy = "a schema without discounts of steps", "use a `ReplayBuffer`"
        raise ArgumentError(message(wanted, "one with the field `discount`", "DeviceBuffer(schema)", remedy))
    if type(item) not in (Transitions, Sequences):
        remedy = (
            'use `Transitions(...)` or `Sequences(...)`, or a `ReplayBuffer` and `prefetch(n, to="torch", device=...)`'
        )
        raise ArgumentError(message("an item that a device buffer has", f"`{item!r}`", "DeviceBuffer(item)", remedy))
    if isinstance(item, Sequences) and item.across_episodes:
        remedy = 'leave `across_episodes` out; or use a `ReplayBuffer` and `prefetch(n, to="torch", device=...)`'
        wanted = "sequences that end with their episode"
        raise ArgumentError(message(wanted, f"`{item!r}`", "DeviceBuffer(item)", remedy))
    if isinstance(item, Sequences) and item.burn_in:
        remedy = 'leave `burn_in` out; or use a `ReplayBuffer` and `prefetch(n, to="torch", device=...)`'
        wanted = "sequences without a burn-in"
        raise ArgumentError(message(wanted, f"`{item!r}`", "DeviceBuffer(item)", remedy))
    if type(sampler) not in (Uniform, Prioritized):
        remedy = 'use `Uniform()` or `Prioritized(...)`, or a `ReplayBuffer` and `prefetch(n, to="torch", device=...)`'
        raise ArgumentError(
            message("a sampler that a device buffer has", f"`{sampler!r}`", "DeviceBuffer(sampler)", remedy)
        )
    if not sampler.replacement:
        wanted, remedy = "draws with replacement", "leave `replacement` out; or use a `ReplayBuffer`"
        raise ArgumentError(message(wanted, f"`{sampler!r}`", "DeviceBuffer(sampler)", remedy))
    if isinstance(sampler, Prioritized) and sampler.newest != "largest":
        wanted, remedy = "`newest='largest'`", "leave `newest` out; or use a `ReplayBuffer`"
        raise ArgumentError(message(wanted, f"`{sampler!r}`", "DeviceBuffer(sampler)", remedy))
    if isinstance(sampler, Uniform) and sampler.over != "steps":
        wanted, remedy = "draws over steps", "leave `over` out; or use a `ReplayBuffer`"
        raise ArgumentError(message(wanted, f"`{sampler!r}`", "DeviceBuffer(sampler)", remedy))


class Arguments:
    """Checks tensors against a schema.

    Args:
        layout: The fields and lanes.
        device: Where all tensors have to be.
    """

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout, self._device = layout, device
        self._all = torch.ones(layout.lanes, dtype=torch.bool, device=device)
        self._of_obs = [part for part in layout.parts if part.observed]

    def step(
        self,
        fields: Mapping[str, Any],
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        final_obs: Any,
        final_mask: Any,
        mask: Any,
        continues: bool,
        priority: Any,
    ) -> Step:
        """One step of all lanes.

        Raises:
            ArgumentError: A field is missing or unknown, or a tensor has another shape or dtype, or is elsewhere.
        """
        names = {part.keys[0] for part in self._layout.parts}
        for name, value in fields.items():
            if name not in names:
                wanted = f"fields of the schema ({', '.join(sorted(names))})"
                raise ArgumentError(message(wanted, f"`{name}`", "DeviceBuffer.add"))
            if value is None:
                raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        for name in sorted(names - fields.keys()):
            raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        values = {part.keys: self._value(fields[part.keys[0]], part.keys) for part in self._layout.parts}
        self._no_others(fields)
        nexts = self._observation(next_obs, "next_obs")
        flags = [self._flag(value, name) for value, name in ((terminated, "terminated"), (truncated, "truncated"))]
        if final_obs is not None:
            ended, final = flags[0] | flags[1], self._observation(final_obs, "final_obs")
            nexts = {
                keys: torch.where(ended.view(-1, *[1] * (value.ndim - 1)), final[keys], value)
                for keys, value in nexts.items()
            }
        active = self._all if mask is None else self._flag(mask, "mask")
        known = self._all if final_mask is None else self._flag(final_mask, "final_mask")
        given = None if priority is None else self._numbers(priority, "priority")
        return Step(values, nexts, flags[0], flags[1], active, known, continues, given)

    def lanes(self, mask: Any, at: str) -> Tensor:
        """The lanes of a call; all, where no mask is given."""
        return self._all if mask is None else self._flag(mask, at)

    def ids(self, ids: Any, at: str) -> Tensor:
        """Ids, int64 `[B]`."""
        found = self._tensor(ids, at)
        if found.dtype != torch.int64 or found.ndim != 1:
            raise ArgumentError(message("int64 ids of shape `(n,)`", _described(found), at))
        return found

    def written(self, ids: Any, fields: Mapping[str, Any]) -> tuple[Tensor, list[tuple[Part, Tensor]]]:
        """Ids, int64 `[n]`, and for each field that is to be written its values as bytes `[n, bytes]`.

        Raises:
            ArgumentError: A field is not writable, or a tensor has another shape or dtype, or is elsewhere.
        """
        which, at = self._tensor(ids, "$.ids"), "DeviceBuffer.write"
        if which.dtype != torch.int64:
            raise ArgumentError(message("int64 ids", _described(which), "$.ids"))
        parts, found = {part.keys: part for part in self._layout.parts if part.writable}, []
        names = ", ".join(f"`{'.'.join(keys)}`" for keys in parts) or "none"
        for keys, value in paths(fields):
            if keys not in parts:
                wanted, remedy = f"a writable field ({names})", "declare it as `Field(..., writable=True)`"
                raise ArgumentError(message(wanted, f"`{'.'.join(keys)}`", at, remedy))
            part, given = parts[keys], self._tensor(value, f"$.{'.'.join(keys)}").detach()
            shape = (*which.shape, *part.shape)
            if given.dtype != part.dtype or given.shape != shape:
                wanted = f"`{part.dtype}` of shape `{tuple(shape)}`"
                raise ArgumentError(message(wanted, _described(given), f"$.{'.'.join(keys)}"))
            count = which.numel()
            flat = given.reshape(count, math.prod(part.shape)).contiguous()
            found.append((part, flat.view(torch.uint8).view(count, part.nbytes)))
        if not found:
            raise ArgumentError(message("a field to write", "none", at))
        return which.reshape(-1), found

    def td_errors(self, td_error: Any, ids: Tensor, at: str) -> Tensor:
        """TD errors, one for each id, of `[B]` or `[B, 1]`; of any floating-point dtype."""
        found = self._tensor(td_error, at).detach()
        if found.shape == (len(ids), 1):
            found = found[:, 0]
        if found.shape != ids.shape or found.dtype not in _FLOATS:
            wanted = f"floating-point numbers of shape `({len(ids)},)`, one per id"
            raise ArgumentError(message(wanted, _described(found), at))
        return found.contiguous()

    def beta(self, beta: Any) -> Tensor:
        """An exponent of weights, as a number of the device; a tensor may change while a graph is replayed."""
        if isinstance(beta, Tensor):
            found = self._tensor(beta, "$.beta")
            if found.ndim or found.dtype not in _FLOATS:
                raise ArgumentError(message("a number, or a tensor of one", _described(found), "$.beta"))
            return found.double()
        return torch.full((), beta, dtype=torch.float64, device=self._device)

    def _observation(self, given: Any, name: str) -> dict[tuple[str, ...], Tensor]:
        if given is None:
            raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        found = {part.keys: self._value(given, part.keys, name) for part in self._of_obs}
        self._exactly(given, [part.keys[1:] for part in self._of_obs], f"$.{name}")
        return found

    def _no_others(self, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            keys = [part.keys[1:] for part in self._layout.parts if part.keys[0] == name]
            self._exactly(value, keys, f"$.{name}")

    def _exactly(self, given: Any, keys: list[tuple[str, ...]], at: str) -> None:
        if not isinstance(given, Mapping):
            return
        wanted = {path[0] for path in keys}
        for name in given:
            if name not in wanted:
                raise ArgumentError(message(f"the keys {', '.join(sorted(wanted))}", f"`{name}`", at))
        for name, child in given.items():
            self._exactly(child, [path[1:] for path in keys if path[0] == name], f"{at}.{name}")

    def _value(self, given: Any, keys: tuple[str, ...], name: str | None = None) -> Tensor:
        at = f"$.{name or keys[0]}"
        for key in keys[1:]:
            if not isinstance(given, Mapping) or key not in given:
                got = f"keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else _described(given)
                raise ArgumentError(message(f"a mapping with the key `{key}`", got, at))
            given, at = given[key], f"{at}.{key}"
        part, found = self._layout.part(*keys), self._tensor(given, at)
        if found.dtype != part.dtype or found.shape != (self._layout.lanes, *part.given):
            wanted = f"`{part.dtype}` of shape `{(self._layout.lanes, *part.given)}`"
            raise ArgumentError(message(wanted, _described(found), at))
        return part.ordered(found.detach())

    def _flag(self, given: Any, name: str) -> Tensor:
        found = self._tensor(given, f"$.{name}")
        if found.dtype != torch.bool or found.shape != (self._layout.lanes,):
            wanted = f"`torch.bool` of shape `({self._layout.lanes},)`"
            remedy = "`.bool()` makes it of other numbers" if found.dtype != torch.bool else None
            raise ArgumentError(message(wanted, _described(found), f"$.{name}", remedy))
        return found

    def _numbers(self, given: Any, name: str) -> Tensor:
        found = self._tensor(given, f"$.{name}")
        if found.dtype not in _FLOATS or found.shape != (self._layout.lanes,):
            wanted = f"floating-point numbers of shape `({self._layout.lanes},)`"
            raise ArgumentError(message(wanted, _described(found), f"$.{name}"))
        return found.detach().double()

    def _tensor(self, given: Any, at: str) -> Tensor:
        if not isinstance(given, Tensor):
            remedy = f"`torch.as_tensor(..., device={str(self._device)!r})` copies it there"
            raise ArgumentError(message("a tensor", f"`{type(given).__name__}`", at, remedy))
        if given.layout != torch.strided:
            raise ArgumentError(message("a dense tensor", f"one of `{given.layout}`", at, "`.to_dense()` makes it one"))
        if given.device != self._device:
            remedy = f"`.to({str(self._device)!r})` copies it there"
            raise ArgumentError(message(f"a tensor on `{self._device}`", f"one on `{given.device}`", at, remedy))
        return given


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"`{value.dtype}` of shape `{tuple(value.shape)}`"
    return f"`{type(value).__name__}`"
