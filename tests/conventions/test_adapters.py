"""Adapters and the lab use what users can use: no private state of a buffer, no private module but those they share.

`_base`, `_schema`, `_disk`, `_flow` and `_adapters` are the adapters' kin: parts that hold nothing of a buffer; the
doctor has `_base` alone, the lab none. A name that `relive` exports is public, whatever module it is in.
"""

from __future__ import annotations

import ast

import pytest
from house import AS_USERS
from source_tree import MODULES, Module, parsed, place
from test_layers import inside, own_imports

import relive

ADAPTERS = [*sorted(f"relive.{name}" for name in AS_USERS - {"cli"}), "relive.ray.rllib", "relive_lab"]
KIN = {"_base", "_schema", "_disk", "_flow", "_adapters"}
KIN_OF = {"relive.doctor": {"_base"}, "relive_lab": set[str]()}
OF_BUFFERS = {name for name in vars(relive.ReplayBuffer) if name[0] == "_" and name[1] != "_"} | {"_core"}
# A mixture draws ahead from its buffers, as a buffer does. What recovers lost steps goes with the device's ring.
ALLOWED = {
    ("relive.mixture", "_ahead"),
    ("relive.simulators._lost", "relive.device._seen.DeviceNumbers"),
    ("relive.lerobot._datasets", "relive.trajectories.lerobot._names.feature_of"),
}


def room(module: Module) -> str | None:
    return max((name for name in ADAPTERS if inside(module.name, name)), key=len, default=None)


def is_public(target: str, name: str) -> bool:
    known = getattr(relive, name, None)
    return known is not None and getattr(known, "__module__", None) == target


def faults(module: Module) -> list[str]:
    own = room(module)
    found = []
    for node, target, name in own_imports(module):
        full, (_, *parts) = f"{target}.{name}".rstrip("."), target.split(".")
        private = any(part[0] == "_" for part in [*parts, name or "public"])
        kin = (parts and parts[0] in KIN_OF.get(str(own), KIN)) or inside(target, str(own)) or inside(str(own), target)
        if private and not kin and not is_public(target, name) and (module.name, full) not in ALLOWED:
            found.append(f"{place(module.path, node)}: {module.name} imports {full}")
    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or node.attr[0] != "_" or (module.name, node.attr) in ALLOWED:
            continue
        of_relive = isinstance(node.value, ast.Name) and node.value.id == "relive" and node.attr[:2] != "__"
        if node.attr not in OF_BUFFERS and not of_relive:
            continue
        its_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and node.attr != "_core"
        found += [] if its_own else [f"{place(module.path, node)}: {module.name} uses {ast.unparse(node)}"]
    return found


def test_adapters_use_public_names() -> None:
    modules = [module for module in MODULES if room(module)]
    assert {room(module) for module in modules} == set(ADAPTERS)
    found = [fault for module in modules for fault in faults(module)]
    assert not found, "\n".join(found)


def test_each_exception_is_needed() -> None:
    uses = {
        (module.name, name)
        for module in MODULES
        for name in [
            *(f"{target}.{name}" for _, target, name in own_imports(module)),
            *(node.attr for node in module.nodes if isinstance(node, ast.Attribute)),
        ]
    }
    assert uses >= ALLOWED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("relive.sb3._buffer", "def f(buffer):\n    return buffer._core.ring"),
        ("relive.sb3._buffer", "class A:\n    def f(self):\n        return self.relive._own_sample()"),
        ("relive.tianshou._vector", "from .._ring.lanes import CUTS"),
        ("relive.torchrl._layout", "from .._buffer.stored import drawable_ids"),
        ("relive.ray.rllib._laid", "from ..._ring import ring"),
        ("relive.ray.rllib._laid", "from .._shard import Shard"),
        ("relive.lerobot._buffer", "def f():\n    from relive._buffer import core"),
        ("relive.minari", "from .items._protocol import sealed"),
        ("relive._adapters.saves", "from ..checkpoints._saving import save"),
        ("relive.mixture", "if TYPE_CHECKING:\n    from ._buffer.core import Core"),
        ("relive.doctor.cost", "from .._schema import spec"),
        ("relive_lab.dqn", "from relive._ring.ring import Ring"),
        ("relive_lab.dqn", "from relive.sum_tree import _first"),
        ("relive_lab.dqn", "import relive\nrelive._ring.kernels.active()"),
        ("relive_lab.dqn", "from relive._base import check"),
    ],
)
def test_meta_a_private_name_is_found(name: str, text: str) -> None:
    assert len(faults(parsed(name, text))) == 1


def test_meta_public_names_pass() -> None:
    text = "from .._base import check\nfrom .._opening import load\nfrom ._trees import frames\n"
    assert not faults(parsed("relive.tianshou._vector", text + "class A:\n    def f(self):\n        self._buffer = 1"))
