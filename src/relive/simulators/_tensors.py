"""What is done with tensors here. None of it waits for a device; `mask_of` copies to one what is given on the host."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from numpy import ndarray
from torch import Tensor

from .._base.nests import located, mapped, zipped
from .._schema.fields import Field, Tree
from ..errors import ArgumentError, SchemaError, message

Nest: TypeAlias = "Tensor | dict[str, Nest]"


def fitted(nest: Any, tree: Tree, lanes: int, device: torch.device, at: str) -> Nest:
    """Select the part of `nest` that the schema's `tree` names, and nothing else.

    Args:
        nest: Tensors `[L, ...]`, in mappings where `tree` has them.
        tree: Fields of a schema.
        lanes: L.
        device: Where the tensors have to be.
        at: The path of `nest` in error messages.

    Raises:
        SchemaError: A name is missing, mappings and tensors do not stand where `tree` has them, or a tensor is of
            another shape, dtype or device.
    """

    def parts(node: tuple[Any, Tree], at: str) -> dict[str, Any] | None:
        nest, tree = node
        if isinstance(tree, Field):
            return None
        if not hasattr(nest, "keys"):
            raise SchemaError(message(f"a mapping with `{sorted(tree)}`", f"`{type(nest).__name__}`", at))
        names = sorted(map(str, nest.keys()))
        missing = sorted(tree.keys() - set(names))
        if missing:
            raise SchemaError(message(f"`{missing[0]}`, as in the schema", f"only `{names}`", at))
        return {name: (nest[name], child) for name, child in tree.items()}

    def tensor(node: tuple[Any, Field], at: str) -> Tensor:
        nest, field = node
        if not isinstance(nest, Tensor):
            names = sorted(map(str, nest.keys())) if hasattr(nest, "keys") else None
            got = f"`{type(nest).__name__}`" if names is None else f"a mapping of `{names}`"
            remedy = f"name the parts in the schema: `{{{names[0]!r}: Field(...)}}`" if names else None
            if isinstance(nest, ndarray):
                remedy = "`relive.gymnasium.Recorder` is for environments of NumPy arrays"
            raise SchemaError(message("a tensor", got, at, remedy))
        shape = (lanes, *field.full_shape)
        if tuple(nest.shape) != shape or nest.dtype is not dtype_of(field) or not same_device(nest.device, device):
            wanted = f"`{field.dtype.name}` of shape `{shape}` on `{device}`"
            got = f"`{str(nest.dtype).removeprefix('torch.')}` of shape `{tuple(nest.shape)}` on `{nest.device}`"
            raise SchemaError(message(wanted, got, at))
        return nest

    found: Nest = located(tensor, (nest, tree), at, parts)
    return found


def dtype_of(field: Field) -> torch.dtype | None:
    """Return PyTorch's dtype of a field, or None if it has none."""
    found: torch.dtype | None = getattr(torch, field.dtype.name, None)
    return found


def same_device(one: torch.device, other: torch.device) -> bool:
    """Return True if these can be one device: `cuda` without a number may be any."""
    return one.type == other.type and (one.index == other.index or None in (one.index, other.index))


def held(nest: Nest) -> Nest:
    """Copy a nest, since simulators write into their tensors again."""
    copy: Nest = mapped(lambda tensor: tensor.detach().clone(), nest)
    return copy


def merged(mask: Tensor, ones: Nest, others: Nest) -> Nest:
    """Merge two nests: the rows of `ones` where `mask`, bool `[L]`, is True, else those of `others`."""

    def choose(one: Tensor, other: Tensor) -> Tensor:
        return torch.where(mask.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    chosen: Nest = zipped(choose, ones, others)
    return chosen


def replaced(nest: Any, parts: Nest) -> Any:
    """Copy the mappings of `nest`, with these parts of it replaced."""

    def entries(node: tuple[Any, Any], at: str) -> dict[str, Any] | None:
        nest, parts = node
        return {name: (value, parts.get(name)) for name, value in nest.items()} if isinstance(parts, dict) else None

    return located(lambda node, at: node[0] if node[1] is None else node[1], (nest, parts), "", entries)


def scattered(rows: Any, ids: Tensor, like: Nest) -> Nest:
    """Copy `like`, `[L, ...]`, with `rows`, `[K, ...]`, at `ids`; K is known on the host."""

    def put(whole: Tensor, part: Tensor) -> Tensor:
        return whole.index_copy(0, ids, part)

    try:
        filled: Nest = zipped(put, like, rows)
    except (KeyError, TypeError, RuntimeError, IndexError) as error:
        wanted = "final observations nested and shaped as observations are"
        raise ArgumentError(message(wanted, f"`{type(error).__name__}: {error}`", "$.infos")) from None
    return filled


def flags(value: Any, lanes: int, device: torch.device, at: str) -> Tensor:
    """Return one bool per lane, from bools, from numbers that are 0 for False, or from one flag for all lanes."""
    if not isinstance(value, Tensor):
        if isinstance(value, bool):
            return torch.full((lanes,), value, device=device)
        raise ArgumentError(message(f"a tensor of {lanes} flags", f"`{type(value).__name__}`", at))
    if tuple(value.shape) != (lanes,):
        raise ArgumentError(message(f"flags of shape `({lanes},)`", f"shape `{tuple(value.shape)}`", at))
    return value if value.dtype is torch.bool else value != 0


def mask_of(which: Any, lanes: int, device: torch.device, at: str) -> Tensor:
    """Return a bool per lane: `which` is a mask, a slice, or ids of lanes."""
    if isinstance(which, slice):
        which = list(range(*which.indices(lanes)))
    given = torch.as_tensor(which, device=device)
    if given.dtype is torch.bool:
        if tuple(given.shape) != (lanes,):
            raise ArgumentError(message(f"a mask of shape `({lanes},)`", f"shape `{tuple(given.shape)}`", at))
        return given
    mask = torch.zeros(lanes, dtype=torch.bool, device=device)
    return mask.index_fill_(0, given.reshape(-1).long(), True)


def parts_of(value: Any, at: str = "") -> dict[str, Any] | None:
    """Return a value's named parts, those of a dict, a TensorDict or a frozen mapping of JAX's libraries, or None."""
    return {str(name): value[name] for name in value.keys()} if hasattr(value, "keys") else None  # noqa: SIM118
