"""Imports point down: a module imports from its own part of relive and from lower ones. The budget counts circles."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from source_tree import MODULES, NAMES, Module, parsed, place

# The layer of each part of relive, from the lowest up. Parts of one layer are neighbours, and do not import each other.
LAYERS = {
    "relive.errors": 0,
    "relive._base": 1,
    "relive._schema": 2,
    "relive.schema": 3,
    "relive._ring": 4,
    "relive._disk": 5,
    "relive.batch": 5,
    "relive.storage": 5,
    "relive.sum_tree": 5,
    "relive._flow": 6,
    "relive.items": 6,
    "relive.samplers": 6,
    "relive._buffer": 7,
    "relive._device_samplers": 7,
    "relive.processes": 8,
    "relive.checkpoints": 9,
    "relive.buffer": 10,
    "relive.device": 11,
    "relive._opening": 12,
    "relive._adapters": 13,
    "relive.mixture": 13,
    "relive.reward_noise": 13,
    "relive.trajectories": 14,
    "relive.gymnasium": 15,
    "relive.lerobot": 15,
    "relive.minari": 15,
    "relive.ray": 15,
    "relive.sb3": 15,
    "relive.simulators": 15,
    "relive.testing": 15,
    "relive.tianshou": 15,
    "relive.torchrl": 15,
    "relive": 16,
    "relive.doctor": 16,
    "relive.cli": 17,
    "relive.__main__": 18,
    "relive_lab": 18,
}
# Neighbours that do: the face names the doctor, which uses relive as a user would.
BESIDE = {("relive", "relive.doctor"), ("relive.doctor", "relive")}
# Lower modules that a part nevertheless knows nothing of.
APART = [("relive.storage", "relive._ring.ring")]
# Only users' tests import these.
FOR_USERS = ["relive.testing"]
KNOWN = {*NAMES, "relive._ring._native"}


def inside(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def part_of(name: str) -> str:
    """Return the part of relive that a module belongs to; the face, `relive`, is one itself."""
    return ".".join(name.split(".")[: 1 if inside(name, "relive_lab") else 2])


@cache
def own_imports(module: Module) -> list[tuple[ast.AST, str, str]]:
    """List the imports of relive's own modules: the node, the module, and the name taken from it."""
    found = []
    for node, base, name, _ in module.imports:
        full = f"{base}.{name}".strip(".")
        if inside(full, "relive") or inside(full, "relive_lab"):
            whole = full in KNOWN or isinstance(node, ast.Import)
            found.append((node, full, "") if whole else (node, base, name))
    return found


def faults(module: Module) -> list[str]:
    """List every import of `module` that its layer does not allow."""
    part = part_of(module.name)
    if part not in LAYERS:
        return [f"{module.name} has no layer: add it to LAYERS"]
    found = []
    for node, target, _ in own_imports(module):
        at, other = place(module.path, node), part_of(target)
        if other not in LAYERS:
            found.append(f"{at}: {target} has no layer: add it to LAYERS")
        elif LAYERS[other] >= LAYERS[part] and other != part and (part, other) not in BESIDE:
            found.append(f"{at}: {module.name} (layer {LAYERS[part]}) imports {target} (layer {LAYERS[other]})")
        for one, two in APART:
            if inside(module.name, one) and inside(target, two):
                found.append(f"{at}: {module.name} imports {target}, which it must not know")
        for offered in FOR_USERS:
            if inside(target, offered) and not inside(module.name, offered):
                found.append(f"{at}: {module.name} imports {target}, which is for users' tests")
    return found


def test_a_module_imports_only_what_its_layer_allows() -> None:
    found = [fault for module in MODULES for fault in faults(module)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("relive.schema", "from .buffer import ReplayBuffer"),
        ("relive.schema", "def late():\n    from relive.buffer import ReplayBuffer"),
        ("relive.buffer", "import relive"),
        ("relive.storage.tape", "from .._ring.ring import Ring"),
        ("relive._ring.ring", "from ..storage.ram import Ram"),
        ("relive._ring.ring", "if TYPE_CHECKING:\n    from ..storage.ram import Ram"),
        ("relive.samplers.recent", "from ..items import Transitions"),
        ("relive.items.episodes", "from relive.samplers.uniform import Uniform"),
        ("relive.cli.bench", "from relive.testing import OracleBuffer"),
        ("relive.unplaced", "import math"),
        ("relive.doctor.cost", "import relive_lab"),
    ],
)
def test_meta_a_forbidden_import_is_found(name: str, text: str) -> None:
    assert len(faults(parsed(name, text))) == 1


def test_meta_allowed_imports_pass() -> None:
    trainer = "import relive\nfrom relive.errors import message\nfrom .nets import MLP"
    assert not faults(parsed("relive_lab.dqn", trainer))
    package = "from ._protocol import Sampler\nfrom .._base import check"
    assert not faults(parsed("relive.samplers", package, is_package=True))
