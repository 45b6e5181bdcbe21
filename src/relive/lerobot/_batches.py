"""LeRobot's batches of transitions: their type, two of them as one, and the random shifts of images."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor
from torch.nn.functional import pad as padded

from ..errors import ArgumentError, event


class BatchTransition(TypedDict):
    """A batch as LeRobot's learner takes it: tensors with the leading axis `[B]`, float32.

    `done` and `truncated` are 0 or 1. `complementary_info` is None if the steps came without any.
    """

    state: dict[str, Tensor]
    action: Tensor
    reward: Tensor
    next_state: dict[str, Tensor]
    done: Tensor
    truncated: Tensor
    complementary_info: dict[str, Tensor] | None


def concatenate_batch_transitions(
    left_batch_transitions: BatchTransition, right_batch_transition: BatchTransition
) -> BatchTransition:
    """Append the right batch to the left one, which is changed and returned."""
    left, right = left_batch_transitions, right_batch_transition
    left["state"] = {key: torch.cat([value, right["state"][key]]) for key, value in left["state"].items()}
    left["next_state"] = {key: torch.cat([v, right["next_state"][key]]) for key, v in left["next_state"].items()}
    left["action"] = torch.cat([left["action"], right["action"]])
    left["reward"] = torch.cat([left["reward"], right["reward"]])
    left["done"] = torch.cat([left["done"], right["done"]])
    left["truncated"] = torch.cat([left["truncated"], right["truncated"]])
    more, info = right.get("complementary_info"), left.get("complementary_info")
    if more is not None:
        known = info or {}
        both = {key: torch.cat([known[key], value]) if key in known else value for key, value in more.items()}
        left["complementary_info"] = {**known, **both}
    return left


def random_crop_vectorized(images: Tensor, output_size: tuple[int, int]) -> Tensor:
    """Crop each image `[B, C, H, W]` at a position of its own, `[B, C, *output_size]`.

    Raises:
        ArgumentError: The crop is larger than the images.
    """
    count, _, height, width = images.shape
    tall, wide = output_size
    if tall > height or wide > width:
        what = f"Requested crop size ({tall}, {wide}) is bigger than the image size ({height}, {width})"
        raise ArgumentError(event(what, "random_crop_vectorized(output_size)"))
    device = images.device
    tops = torch.randint(0, height - tall + 1, (count, 1), device=device)
    lefts = torch.randint(0, width - wide + 1, (count, 1), device=device)
    rows = (torch.arange(tall, device=device) + tops)[:, None, :, None]
    columns = (torch.arange(wide, device=device) + lefts)[:, None, None, :]
    which = torch.arange(count, device=device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=device)[None, :, None, None]
    return images[which, channels, rows, columns]


def random_shift(images: Tensor, pad: int = 4) -> Tensor:
    """Shift each image `[B, C, H, W]` by up to `pad` pixels, as DrQ does; borders are repeated."""
    height, width = images.shape[-2:]
    return random_crop_vectorized(padded(images, (pad, pad, pad, pad), mode="replicate"), (height, width))
