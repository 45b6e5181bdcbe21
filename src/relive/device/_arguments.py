"""What the calls of a device buffer are given, checked by shape, dtype and device: these are known without a wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._base import check
from .._base.nests import paths
from ..errors import ArgumentError, message
from ._fields import Fields, TensorField
from ._step import LanesStep

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Arguments:
    """Checks tensors against a schema.

    Args:
        fields: The fields of a step.
        lanes: L.
        device: Where all tensors have to be.
    """

    def __init__(self, fields: Sequence[TensorField], lanes: int, device: torch.device) -> None:
        self._fields, self._lanes, self._device = {field.keys: field for field in fields}, lanes, device
        self._all = torch.ones(lanes, dtype=torch.bool, device=device)
        self._names = {field.keys[0] for field in fields}
        self._of_obs = [field for field in fields if field.observed]

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
    ) -> LanesStep:
        """Check one step of all lanes.

        Raises:
            ArgumentError: A field is missing or unknown, or a tensor has another shape or dtype, or is elsewhere.
        """
        for name, value in fields.items():
            if name not in self._names:
                wanted = f"fields of the schema ({', '.join(sorted(self._names))})"
                raise ArgumentError(message(wanted, f"`{name}`", "DeviceBuffer.add"))
            if value is None:
                raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        for name in sorted(self._names - fields.keys()):
            raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        values = {field.keys: self._value(fields[field.keys[0]], field) for field in self._fields.values()}
        for name, value in fields.items():
            self._exactly(value, [keys[1:] for keys in self._fields if keys[0] == name], f"$.{name}")
        nexts = self._observation(next_obs, "next_obs")
        return LanesStep(
            values=values,
            nexts=nexts,
            finals=nexts if final_obs is None else self._observation(final_obs, "final_obs"),
            known=None if final_mask is None else self._flag(final_mask, "final_mask"),
            terminated=self._flag(terminated, "terminated"),
            truncated=self._flag(truncated, "truncated"),
            mask=None if mask is None else self._flag(mask, "mask"),
            continues=continues,
        )

    def priorities(self, priority: Any) -> Tensor | None:
        """Check raw priorities, floats `[L]`, or none."""
        if priority is None:
            return None
        found = self._tensor(priority, "$.priority")
        if found.dtype not in _FLOATS or found.shape != (self._lanes,):
            wanted = f"floating-point numbers of shape `({self._lanes},)`"
            raise ArgumentError(message(wanted, _described(found), "$.priority"))
        return found.detach().float()

    def lanes(self, mask: Any, at: str) -> Tensor:
        """Check the lanes of a call; return all without a mask."""
        return self._all if mask is None else self._flag(mask, at)

    def ids(self, ids: Any, at: str) -> Tensor:
        """Check ids, int64 `[B]`."""
        found = self._tensor(ids, at)
        if found.dtype != torch.int64 or found.ndim != 1:
            raise ArgumentError(message("int64 ids of shape `(n,)`", _described(found), at))
        return found

    def written(self, ids: Any, fields: Mapping[str, Any]) -> tuple[Tensor, dict[TensorField, Tensor]]:
        """Check ids, int64 of any shape, and the values to write for them; return both with a single first axis.

        Raises:
            ArgumentError: A field is not writable, or a tensor has another shape or dtype, or is elsewhere.
        """
        which, at = self._tensor(ids, "$.ids"), "DeviceBuffer.write"
        if which.dtype != torch.int64:
            raise ArgumentError(message("int64 ids", _described(which), "$.ids"))
        known, found = {keys: field for keys, field in self._fields.items() if field.writable}, {}
        names = ", ".join(f"`{'.'.join(keys)}`" for keys in sorted(known)) or "none"
        for keys, value in paths(fields):
            if keys not in known:
                wanted, remedy = f"a writable field ({names})", "declare it as `Field(..., writable=True)`"
                raise ArgumentError(message(wanted, f"`{'.'.join(keys)}`", at, remedy))
            field, given = known[keys], self._tensor(value, f"$.{'.'.join(keys)}").detach()
            shape = (*which.shape, *field.shape)
            if given.dtype != field.dtype or given.shape != shape:
                wanted = f"`{field.dtype}` of shape `{tuple(shape)}`"
                raise ArgumentError(message(wanted, _described(given), f"$.{'.'.join(keys)}"))
            found[field] = given.reshape(which.numel(), *field.shape)
        if not found:
            raise ArgumentError(message("a field to write", "none", at))
        return which.reshape(-1), found

    def td_errors(self, td_error: Any, ids: Tensor, at: str) -> Tensor:
        """Check TD errors, one for each id, of `[B]` or `[B, 1]` and any floating-point dtype; return float32."""
        found = self._tensor(td_error, at).detach()
        if found.shape == (len(ids), 1):
            found = found[:, 0]
        if found.shape != ids.shape or found.dtype not in _FLOATS:
            wanted = f"floating-point numbers of shape `({len(ids)},)`, one per id"
            raise ArgumentError(message(wanted, _described(found), at))
        return found.float()

    def beta(self, beta: Any) -> float | Tensor:
        """Check an exponent of weights; a tensor may change while a graph is replayed."""
        if not isinstance(beta, Tensor):
            return check.real(beta, "DeviceBuffer.sample(beta)", low=0.0)
        found = self._tensor(beta, "$.beta").detach()
        if found.ndim or found.dtype not in _FLOATS:
            raise ArgumentError(message("a number, or a tensor of one", _described(found), "$.beta"))
        return found

    def _observation(self, given: Any, name: str) -> Fields:
        if given is None:
            raise ArgumentError(message("a tensor", "nothing", f"$.{name}"))
        found = {field.keys: self._value(given, field, name) for field in self._of_obs}
        self._exactly(given, [field.keys[1:] for field in self._of_obs], f"$.{name}")
        return found

    def _exactly(self, given: Any, keys: list[tuple[str, ...]], at: str) -> None:
        if not isinstance(given, Mapping):
            return
        wanted = {path[0] for path in keys}
        for name in given:
            if name not in wanted:
                raise ArgumentError(message(f"the keys {', '.join(sorted(wanted))}", f"`{name}`", at))
        for name, child in given.items():
            self._exactly(child, [path[1:] for path in keys if path[0] == name], f"{at}.{name}")

    def _value(self, given: Any, field: TensorField, name: str | None = None) -> Tensor:
        at = f"$.{name or field.keys[0]}"
        for key in field.keys[1:]:
            if not isinstance(given, Mapping) or key not in given:
                got = f"keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else _described(given)
                raise ArgumentError(message(f"a mapping with the key `{key}`", got, at))
            given, at = given[key], f"{at}.{key}"
        found = self._tensor(given, at)
        if found.dtype != field.dtype or found.shape != (self._lanes, *field.given):
            wanted = f"`{field.dtype}` of shape `{(self._lanes, *field.given)}`"
            raise ArgumentError(message(wanted, _described(found), at))
        return found.detach()

    def _flag(self, given: Any, name: str) -> Tensor:
        found = self._tensor(given, f"$.{name}")
        if found.dtype != torch.bool or found.shape != (self._lanes,):
            wanted = f"`torch.bool` of shape `({self._lanes},)`"
            remedy = "`.bool()` makes it of other numbers" if found.dtype != torch.bool else None
            raise ArgumentError(message(wanted, _described(found), f"$.{name}", remedy))
        return found

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
