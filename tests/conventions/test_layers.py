"""Imports point down: a module imports from its own layer and from lower ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

import pytest
from source_tree import MODULES, NAMES, Module, parsed, place

# A module belongs to the longest of these names that starts its own. A new module is placed here once.
LAYERS = {
    "relive.errors": 0,
    "relive._base": 0,
    "relive._ring.kernel_types": 0,
    "relive._ring.lanes": 0,
    "relive._ring.plans": 0,
    "relive._schema": 0,
    "relive._disk": 1,
    "relive._ring": 1,
    "relive._flow": 1,
    "relive.schema": 1,
    "relive._ring.ring": 2,
    "relive.storage": 2,
    "relive.sum_tree": 2,
    "relive.items": 3,
    "relive.samplers": 3,
    "relive._buffer": 4,
    "relive._flow.pacing": 4,
    "relive._flow.prefetch": 4,
    "relive._flow.transform": 4,
    "relive.batch": 4,
    "relive.buffer": 4,
    "relive.checkpoints": 4,
    "relive.checkpoints._loading": 5,
    "relive.checkpoints.salvage": 5,
    "relive.checkpoints.sharded": 5,
    "relive.processes": 4,
    "relive.processes.opening": 5,
    "relive._adapters": 5,
    "relive.mixture": 5,
    "relive.reward_noise": 5,
    "relive.trajectories": 5,
    "relive.gymnasium": 6,
    "relive.minari": 6,
    "relive.device": 4,
    "relive.simulators": 6,
    "relive.testing": 6,
    "relive.doctor": 7,
    "relive.lerobot": 6,
    "relive.tianshou": 6,
    "relive.torchrl": 6,
    "relive.ray": 6,
    "relive.sb3": 7,
    "relive": 7,
    "relive.__main__": 8,
    "relive.cli": 8,
    "relive_lab": 9,
}
# Packages without import circles of any kind: imports inside functions and for type checkers count, too.
WITHOUT_CIRCLES = [
    "relive.checkpoints",
    "relive.cli",
    "relive.doctor",
    "relive.ray",
    "relive.sb3",
    "relive.simulators",
    "relive.trajectories",
    "relive_lab",
]
# Neighbours in a layer that know nothing of each other.
APART = [
    ("relive.storage", "relive._ring.ring"),
    ("relive.items", "relive.samplers"),
]
# Only users' tests import these.
FOR_USERS = ["relive.testing"]
# These import relive as a user would; the doctor's also the private helpers of layer 0.
AS_USERS = ["relive.doctor", "relive_lab"]
KNOWN = {*NAMES, "relive._ring._native"}


def inside(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


@lru_cache
def part_of(name: str) -> str | None:
    """Return the entry of `LAYERS` that `name` belongs to; the face, `relive`, covers only itself."""
    fitting = [part for part in LAYERS if inside(name, part) and (part != "relive" or name == "relive")]
    return max(fitting, key=len, default=None)


def imports(module: Module) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yield every import of relive's own modules: its node, the module, and the name taken from it."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                steps = module.package.split(".")
                base = ".".join([*steps[: len(steps) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (node, full, "") if full in KNOWN else (node, base, alias.name)


def own_imports(module: Module) -> list[tuple[ast.stmt, str, str]]:
    return [
        (node, target, name)
        for node, target, name in imports(module)
        if inside(target, "relive") or inside(target, "relive_lab")
    ]


def faults(module: Module) -> list[str]:
    """List every import of `module` that its layer does not allow."""
    part = part_of(module.name)
    if part is None:
        return [f"{module.name} has no layer: add it to LAYERS"]
    found = []
    for node, target, name in own_imports(module):
        at, other = place(module.path, node), part_of(target)
        if other is None:
            found.append(f"{at}: {target} has no layer: add it to LAYERS")
        elif LAYERS[other] > LAYERS[part]:
            found.append(f"{at}: {module.name} (layer {LAYERS[part]}) imports {target} (layer {LAYERS[other]})")
        for one, two in APART:
            if (inside(module.name, one) and inside(target, two)) or (inside(module.name, two) and inside(target, one)):
                found.append(f"{at}: {module.name} imports {target}; these two do not know each other")
        for offered in FOR_USERS:
            if inside(target, offered) and not inside(module.name, offered):
                found.append(f"{at}: {module.name} imports {target}, which is for users' tests")
        for user in AS_USERS:
            private = any(step.startswith("_") for step in [*target.split("."), name])
            private = private and (LAYERS.get(str(other)) != 0 or user == "relive_lab")
            if inside(module.name, user) and not inside(target, user) and private:
                found.append(f"{at}: {module.name} imports {target} {name}, which is not public")
    if any(inside(module.name, user) for user in AS_USERS):
        found += private_attributes(module)
    return found


def private_attributes(module: Module) -> list[str]:
    """List every `relive._x` in the text, however relive was imported."""
    return [
        f"{place(module.path, node)}: {module.name} uses relive.{node.attr}"
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and isinstance(node.value, ast.Name)
        and node.value.id == "relive"
    ]


def loading(module: Module) -> Module:
    """Return the module without function bodies and type checkers' imports: its imports when it is loaded."""
    tree = ast.Module([], [])
    waiting: list[ast.AST] = [*module.tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            tree.body.append(node)
        only_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not (only_types or isinstance(node, ast.FunctionDef)):
            waiting += [
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler)
            ]
    return Module(module.name, module.path, ast.unparse(tree))


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Reduce the graph by taking away, again and again, every module that waits for no other."""
    waiting = {name: set(targets) - {name} for name, targets in graph.items()}
    while free := [name for name, targets in waiting.items() if not targets & waiting.keys()]:
        for name in free:
            del waiting[name]
    return sorted(waiting)


def test_a_module_imports_only_what_its_layer_allows() -> None:
    found = [fault for module in MODULES for fault in faults(module)]
    assert not found, "\n".join(found)


def test_no_cycle_while_loading() -> None:
    graph = {module.name: {target for _, target, _ in own_imports(loading(module))} for module in MODULES}
    assert not cycles(graph)


def circles(package: str, modules: list[Module]) -> list[str]:
    """List the modules of a package that depend on each other in a circle; an `__init__` only hands on names."""
    members = {module.name for module in modules if inside(module.name, package) and module.name != package}
    graph = {m.name: {target for _, target, _ in own_imports(m)} & members for m in modules if m.name in members}
    return cycles(graph)


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_circle_of_any_imports(package: str) -> None:
    assert any(inside(name, package) for name in NAMES)
    assert not circles(package, MODULES)


@pytest.mark.parametrize("late", ["if TYPE_CHECKING:\n    from ._a import A", "def f():\n    from . import _a"])
def test_meta_a_circle_of_any_imports_is_found(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.KNOWN", {"relive.p._a", "relive.p._b"})
    pair = [parsed("relive.p._a", "from ._b import B"), parsed("relive.p._b", late)]
    assert circles("relive.p", pair) == ["relive.p._a", "relive.p._b"]
    assert not circles("relive.p", [pair[0], parsed("relive.p._b", "")])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("relive.schema", "from .buffer import ReplayBuffer"),
        ("relive.schema", "def late():\n    from relive.buffer import ReplayBuffer"),
        ("relive.buffer", "import relive"),
        ("relive.storage.tape", "from .._ring.ring import Ring"),
        ("relive._ring.ring", "from ..storage.ram import Ram"),
        ("relive.samplers.recent", "from ..items import Transitions"),
        ("relive.items.episodes", "from relive.samplers.uniform import Uniform"),
        ("relive.cli.bench", "from relive.testing import OracleBuffer"),
        ("relive.unplaced", "import math"),
        ("relive_lab.dqn", "from relive._ring.ring import Ring"),
        ("relive_lab.dqn", "from relive.sum_tree import _first"),
        ("relive_lab.dqn", "import relive\nrelive._ring.kernels.active()"),
        ("relive_lab.dqn", "from relive._base import check"),
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


def test_meta_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
