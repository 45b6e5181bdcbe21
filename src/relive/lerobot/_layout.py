"""Where LeRobot's keys are in a schema, and the way of a step and of a batch to and from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .._base.narrow import from_torch
from .._base.nests import Path, nested, paths
from .._base.types import Array
from ..batch import Batch
from ..errors import SchemaError, message
from ..schema import Field, Schema
from ._batches import BatchTransition

Value: TypeAlias = "Tensor | float | int | bool"
State: TypeAlias = "Mapping[str, Tensor]"
Nest: TypeAlias = "dict[str, object]"
IMAGE = "observation.image"  # what the keys of images begin with
_AT = "ReplayBuffer.add"


class Inexact(Exception):
    """An image that is no multiple of 1/255, in a buffer that stores images as such."""


class AddedStep(NamedTuple):
    """The arguments of `ReplayBuffer.add`."""

    state: State
    action: Tensor
    reward: float
    next_state: State | None
    done: bool
    truncated: bool
    complementary_info: Mapping[str, Value] | None


class StepLayout:
    """The keys of steps, and where their values are in a schema.

    Args:
        schema: The schema.
        rounded: Whether an image that is no multiple of 1/255 is stored as the nearest one.

    Attributes:
        schema: The schema.
        images: The keys of images.
        info: The keys of `complementary_info`; None if steps have none.
    """

    def __init__(self, schema: Schema, rounded: bool) -> None:
        self.schema, self._rounded = schema, rounded
        columns = {column.keys: column.field for column in schema.columns}
        self._state = {".".join(path[1:]): path[1:] for path in columns if path[0] == "obs"}
        info = {".".join(path[1:]): path[1:] for path in columns if path[0] == "complementary_info"}
        self.info = info or None
        self._shapes = {path: field.shape for path, field in columns.items()}
        self.images = [key for key in self._state if is_image(key)]
        self._codes = {key for key in self._state if columns["obs", *self._state[key]].dtype == np.uint8}
        self._last: dict[str, tuple[Tensor, Array]] = {}

    @classmethod
    def of(
        cls,
        state: State,
        action: Tensor,
        info: Mapping[str, Value] | None,
        images: str,
    ) -> StepLayout:
        """Lay out steps like this one, with images as `"exact"`, `"rounded"` or `"float32"` says."""
        values = {key: value.squeeze(0) for key, value in state.items()}
        for keys in (values, named(info or {})):
            _distinct([*keys])
        code = images == "rounded" or (images == "exact" and all(_codes(v) is not None for v in _images(values)))
        obs = nested((_path(key), Field(tuple(v.shape), _dtype(key, v, code))) for key, v in values.items())
        extras = {}
        if info:
            fields = ((_path(key), Field(np.shape(_number(value)))) for key, value in named(info).items())
            extras["complementary_info"] = nested(fields)
        schema = Schema(obs=obs, action=Field(tuple(action.squeeze(0).shape)), **extras)
        return cls(schema, rounded=images == "rounded")

    def arguments(self, step: AddedStep, drop: bool) -> dict[str, Any]:
        """Return a step as the arguments of relive's `add`.

        Args:
            step: The step.
            drop: Whether keys of `complementary_info` that the first step had not are left out.

        Raises:
            SchemaError: A key is missing, or is new.
            Inexact: An image is no multiple of 1/255.
        """
        return {
            "obs": self._observed(step.state, "state"),
            "action": _array(step.action),
            "reward": float(step.reward),
            "next_obs": None if step.next_state is None else self._observed(step.next_state, "next_state"),
            "terminated": bool(step.done),
            "truncated": bool(step.truncated),
            **self._extras(step.complementary_info, drop),
        }

    @property
    def keys(self) -> list[str]:
        """The keys of a state."""
        return [*self._state]

    def _observed(self, state: State, at: str) -> Nest:
        """Convert a state to the schema's observation; keys that the first one lacked are left out, as LeRobot does."""
        found: list[tuple[Path, Array]] = []
        for key, path in self._state.items():
            if key not in state:
                raise SchemaError(message(f"the key `{key}`, which the first one had", _keys(state), f"$.{at}"))
            value = state[key]
            found.append((path, self._coded(key, value) if key in self._codes else _array(value)))
        return nested(found)

    def _coded(self, key: str, image: Tensor) -> Array:
        """Encode an image as uint8. Most come twice, as the state after a step and as the one before the next."""
        last = self._last.get(key)
        if last is not None and last[0].device == image.device and torch.equal(last[0], image):
            return last[1]
        codes = _nearest(image.squeeze(0)) if self._rounded else _codes(image.squeeze(0))
        if codes is None:
            raise Inexact
        array = from_torch(codes)
        self._last[key] = image.clone(), array
        return array

    def _extras(self, info: Mapping[str, Value] | None, drop: bool) -> Nest:
        """Convert `complementary_info` to an extra of the schema."""
        known = self.info or {}
        given = info if info is not None and info.keys() == known.keys() else named(info or {})
        missing = [key for key in known if key not in given]
        if missing:
            wanted = f"the key `{missing[0]}`, which the first step had"
            raise SchemaError(message(wanted, _keys(given), "$.complementary_info"))
        new = [] if drop else [key for key in given if key not in known]
        if new:
            wanted = "the keys of the first step, " + _keys(known)
            remedy = 'give it in every step, or leave it out with `unknown_info="drop"`'
            raise SchemaError(message(wanted, f"`{new[0]}`", f"$.complementary_info.{new[0]}", remedy))
        if not known:
            return {}
        return {"complementary_info": nested((path, _number(given[key])) for key, path in known.items())}

    def unknown(self, info: Mapping[str, Value] | None) -> set[str]:
        """Return the keys of `complementary_info` that the first step lacked."""
        return {*named(info or {})} - {*(self.info or {})}

    def widened(self) -> StepLayout:
        """Return the layout of the same steps, with images as float32."""
        fields = {column.keys: column.field for column in self.schema.columns}
        for key in self._codes:
            path = ("obs", *self._state[key])
            fields[path] = Field(fields[path].shape)
        return StepLayout(Schema(**nested(fields.items())), rounded=False)

    def decoded(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Convert stored steps of a layout with coded images to arguments of `extend` for this one."""
        known = (*self.schema.tree, "next_obs", "terminated", "truncated")
        flat = dict(paths({name: fields[name] for name in known}))
        images = {("obs", *self._state[key]) for key in self.images}
        images |= {("next_obs", *path[1:]) for path in images}
        for path in images & flat.keys():
            if flat[path].dtype == np.uint8:
                flat[path] = _decoded(torch.from_numpy(flat[path])).numpy()
        return nested(flat.items())

    def batch(self, batch: Batch, device: torch.device) -> BatchTransition:
        """Convert a batch to LeRobot's: float32 on `device`."""
        info = None
        if self.info is not None:
            extras = batch.complementary_info
            info = {key: _floats(_at(extras, path), device) for key, path in self.info.items()}
        return BatchTransition(
            state=self._named(batch["obs"], device),
            action=_floats(batch.action, device),
            reward=_floats(batch.reward, device),
            next_state=self._named(batch["next_obs"], device),
            done=_floats(batch.terminated, device),
            truncated=_floats(batch.truncated, device),
            complementary_info=info,
        )

    def _named(self, obs: Nest, device: torch.device) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for key, path in self._state.items():
            values = _at(obs, path)
            # Codes are smaller, so these go to the device.
            coded = key in self._codes
            found[key] = _decoded(torch.from_numpy(values).to(device)) if coded else _floats(values, device)
        return found


def is_image(key: str) -> bool:
    """Return True if LeRobot takes values of this key for images."""
    return key.startswith(IMAGE)


def named(info: Mapping[str, Value]) -> dict[str, Value]:
    """Convert the keys of `complementary_info` to text; LeRobot's events are an enumeration of texts."""
    return {str(key.value) if isinstance(key, Enum) else key: value for key, value in info.items()}


def _images(values: Mapping[str, Tensor]) -> list[Tensor]:
    return [value for key, value in values.items() if is_image(key) and value.ndim == 3]


def _dtype(key: str, value: Tensor, code: bool) -> str:
    return "uint8" if code and is_image(key) and value.ndim == 3 else "float32"


def _path(key: str) -> Path:
    return tuple(key.split("."))


def _distinct(keys: Sequence[str]) -> None:
    for key in keys:
        longer = [other for other in keys if other.startswith(f"{key}.")]
        if longer:
            raise SchemaError(message(f"no key that begins with `{key}.`", f"`{longer[0]}`", "$.state", "rename one"))


def _keys(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys) or "none"


def _array(value: Tensor) -> Array:
    """Convert a value to float32, without the leading axis of a batch of one."""
    if value.dtype != torch.float32 or value.requires_grad or value.device.type != "cpu":
        value = value.detach().float().cpu()
    array: Array = value.numpy()
    return array[0, ...] if array.shape[:1] == (1,) else array


def _number(value: Value) -> Array | float:
    """Convert a value of `complementary_info`, likewise."""
    if isinstance(value, Tensor):
        return _array(value)
    if isinstance(value, bool | int | float):
        return float(value)
    raise SchemaError(message("a tensor or a number", f"`{type(value).__name__}`", "$.complementary_info"))


def _nearest(image: Tensor) -> Tensor:
    """Round to the nearest multiples of 1/255, as uint8."""
    return (image.float() * 255).round_().clamp_(0, 255).to(torch.uint8)


def _codes(image: Tensor) -> Tensor | None:
    """Convert an image of exact multiples of 1/255 to uint8; return None for any other."""
    codes = _nearest(image)
    return codes if torch.equal(_decoded(codes), image.float()) else None


def _decoded(codes: Tensor) -> Tensor:
    # By a tensor: on a GPU a division by a number is a product with its inverse, which has other bits.
    return codes.float().div_(torch.tensor(255.0, device=codes.device))


def _floats(values: Array, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    if device.type != "cpu":
        tensor = tensor.to(device)
    return tensor if tensor.dtype == torch.float32 else tensor.float()


def _at(nest: Any, path: Path) -> Array:
    for name in path:
        nest = nest[name]
    array: Array = nest
    return array
