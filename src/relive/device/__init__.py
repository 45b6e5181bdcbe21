"""Replay on a GPU: relive's ring, items and samplers as tensors of a device, whose calls never wait for it."""

from .._base.extras import needs

with needs("torch", "relive.DeviceBuffer"):
    from .buffer import DeviceBuffer as DeviceBuffer
