"""Finds calls that wait for a device, on a machine that has none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose result's shape or value the host needs.
WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive",
           "is_nonzero", "masked_scatter", "masked_scatter_", "bincount", "repeat_interleave", "equal", "allclose",
           "argwhere", "lift_fresh"}  # fmt: skip
# Operations that start no kernel.
VIEWS = {"view", "slice", "select", "expand", "unsqueeze", "unbind", "alias", "split", "detach", "_unsafe_view", "t",
         "squeeze", "permute", "empty", "empty_like", "as_strided", "_reshape_alias", "transpose"}  # fmt: skip


class NoWait(TorchDispatchMode):
    """Refuses what waits for a device: what is above, masks as indices, and copies from one device to another.

    Attributes:
        ops: How often each operation was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        indices = args[1] if name.startswith("index") and isinstance(args[1], list) else ()
        masks = [index for index in indices if index is not None and index.dtype in (torch.bool, torch.uint8)]
        leaves = pytree.tree_leaves((args, kwargs or {}))
        devices = {leaf.device for leaf in leaves if isinstance(leaf, Tensor)}  # a 0-d tensor of the host, too
        moves = name == "_to_copy" and (kwargs or {}).get("device") not in (None, *devices)
        if name in WAITING or masks or len(devices) > 1 or moves:
            raise RuntimeError(f"{func} waits for the device")
        self.ops[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def launches(self) -> int:
        """Kernels that a GPU would have started."""
        return sum(count for name, count in self.ops.items() if name not in VIEWS)


def fake_device() -> torch.device:
    """Make a device without kernels, for use in a `FakeTensorMode`: its tensors know their device."""
    name = "_setup_privateuseone_for_python_backend"
    setup = getattr(torch.utils.backend_registration, name, None)
    if setup is None:
        pytest.skip(f"PyTorch {torch.__version__} has no `{name}`")
    if torch._C._get_privateuse1_backend_name() == "privateuseone":
        setup("gpu")
        # Libraries that wait for every device ask this one, too.
        torch.gpu.synchronize = lambda *_: None
    return torch.device("gpu", 0)
