"""Each public name has one entry in docs/reference, and each entry names something public."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from markdown_pages import read
from source_tree import MODULES, ROOT, Module

# Modules whose names are public: what `__all__` lists, else what is exported by `as`, else what the module defines.
FACES = ["relive", "relive.ray.rllib", "relive.testing.strategies"]
LISTED_IN = "device doctor errors gymnasium items lerobot minari ray samplers sb3 simulators storage testing tianshou"
FACES += [f"relive.{name}" for name in [*LISTED_IN.split(), "torchrl", "trajectories"]]
# Other names that methods return, or that pages name.
OTHERS = {
    "_flow.limiter": "LimiterStats",
    "_flow.prefetch": "Prefetched",
    "checkpoints.autosave": "AutosaveStats",
    "checkpoints.inspection": "Inspection inspect is_saved verify",
    "checkpoints.salvage": "Salvage salvage",
    "checkpoints.sharded": "ShardSeen ShardsInspection ShardsSalvage inspect salvage verify",
    "checkpoints.watching": "SavesSeen SavesWatch",
    "cli": "main",
    "mixture": "Sampled",
    "doctor.pipelines": "named",
    "processes.watching": "LaneSeen Seen Watch",
    "reward_noise": "RewardNoise",
    "trajectories.formats": "Episodes Format register",
}
FURTHER = [f"relive.{module}.{name}" for module, names in OTHERS.items() for name in names.split()]
BY_NAME = {module.name: module for module in MODULES}
ENTRY = re.compile(r"^(?:\.\. (?:auto|py:)\w+::)?\s+(relive(?:\.\w+)+)$", re.MULTILINE)


def exports(module: Module) -> dict[str, str]:
    """Map names that a module imports to their origins."""
    return {here: f"{base}.{name}" for _, base, name, here in module.imports if here}


def defined(module: Module) -> set[str]:
    """Return names that a module defines itself, at its top or below a condition."""
    kinds = ast.ClassDef | ast.FunctionDef
    own = {node.name for node in module.tree.body if isinstance(node, kinds)}
    targets = [ast.unparse(node).partition(" = ")[0] for node in module.tree.body if isinstance(node, ast.Assign)]
    annotated = {ast.unparse(node.target) for node in module.tree.body if isinstance(node, ast.AnnAssign)}
    return own | annotated | {name.strip() for target in targets for name in target.strip("()").split(",")}


def public(module: Module) -> set[str]:
    for node in module.tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "__all__"
            and isinstance(node.value, ast.List)
        ):
            return {*ast.literal_eval(node.value)}
    named = {
        one.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.asname == one.name
    }
    kinds = ast.ClassDef | ast.FunctionDef
    return named or {node.name for node in module.tree.body if isinstance(node, kinds) and node.name[0] != "_"}


def origin(name: str) -> str:
    """Return the module that defines a name, whichever exports it."""
    package, _, last = name.rpartition(".")
    if name in BY_NAME or package not in BY_NAME:
        return name
    elsewhere = exports(BY_NAME[package]).get(last)
    return origin(elsewhere) if elsewhere else name


def entries(text: str) -> list[str]:
    return ENTRY.findall(text)


def faults(listed: list[str]) -> list[str]:
    """List names without an entry, with several entries, and entries of no name."""
    names = {f"{face}.{name}" for face in FACES for name in public(BY_NAME[face])} | {*FURTHER}
    wanted = {found for found in map(origin, names) if found not in BY_NAME}
    counts = Counter(map(origin, listed))
    found = [f"{name}: no entry" for name in sorted(wanted - counts.keys())]
    found += [f"{name}: {count} entries" for name, count in counts.items() if count > 1]
    for name in listed:
        package, _, last = origin(name).rpartition(".")
        if package not in BY_NAME or last not in defined(BY_NAME[package]):
            found.append(f"{name}: there is no such name")
    return found + [f"{name}: is not public" for name in sorted(counts.keys() - wanted)]


LISTED = [name for page in sorted((ROOT / "docs" / "reference").glob("*.md")) for name in entries(read(page))]


def test_each_public_name_has_one_entry() -> None:
    assert not faults(LISTED)


@pytest.mark.parametrize(
    ("listed", "fault"),
    [
        (LISTED[1:], "no entry"),
        ([*LISTED, "relive.storage.Ram"], "2 entries"),
        ([*LISTED, "relive.Gone"], "no such name"),
        ([*LISTED, "relive.cli.ended"], "is not public"),
    ],
)
def test_meta_a_fault_of_the_reference_is_found(listed: list[str], fault: str) -> None:
    assert any(fault in found for found in faults(listed))


def test_meta_entries_are_read() -> None:
    text = (
        ".. autoclass:: relive.Ram\n   :members:\n\n.. py:data:: relive.testing.GO\n             relive.testing.BOTH\n"
    )
    assert entries(text) == ["relive.Ram", "relive.testing.GO", "relive.testing.BOTH"]
