"""Tests change no private attribute of what they test. Sizes of portions are changed in `tests/support/sizes.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import walked

ROOT = Path(__file__).resolve().parents[2]
# What a file that changes one has: no other file need be parsed.
LIKELY = re.compile(r"\._\w+[^\n()]*=|(?:del|for|as) \w+\._|(?:setattr|delattr|patch)\b")


def private(name: object) -> bool:
    own = str(name).rpartition(".")[2]
    return isinstance(name, str) and own.startswith("_") and not own.startswith("__")


def dotted(node: ast.expr) -> str:
    """Format names and attributes as they are written; for other nodes, nothing but the attributes."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def changed(text: str) -> Iterator[str]:
    """Yield the private names that a file's tests assign to or patch, but for attributes of its own classes."""
    nodes = walked(ast.parse(text)) if LIKELY.search(text) else []
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]
    own = {node.attr for node in stored if dotted(node.value) == "self"}
    yield from (node.attr for node in stored if private(node.attr) and node.attr not in own)
    for node in nodes:
        called = dotted(node.func) if isinstance(node, ast.Call) else ""
        if called.rpartition(".")[2] in ("setattr", "delattr", "patch") or "patch." in called:
            given = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
            names = [*given, *(each.arg for each in node.keywords)]
            yield from (str(name).rpartition(".")[2] for name in names if private(name))


def found() -> set[str]:
    files = [path for folder in ("tests", "lab/tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [
        (str(path.relative_to(ROOT)), name) for path in files for name in changed(path.read_text(encoding="utf-8"))
    ]
    return {f"{path}: {name}" for path, name in names}


def test_tests_change_no_private_attribute() -> None:
    assert sorted(found()) == []


@pytest.mark.parametrize(
    "line",
    [
        "buffer._steps = 2",
        "buffer._steps += 2",
        "buffer._one, x = 1, 2",
        "del buffer._steps",
        'monkeypatch.setattr(buffer, "_steps", 2)',
        'monkeypatch.setattr("relive.buffer._STEPS", 2)',
        'mock.patch("relive.buffer._STEPS", 2)',
        'mock.patch.object(buffer, "_steps")',
        "mock.patch.multiple(buffer, _steps=2)",
        'setattr(buffer, "_steps", 2)',
    ],
)
def test_meta_each_way_is_seen(line: str) -> None:
    assert len([*changed(line)]) == 1


def test_meta_what_a_test_has_itself_is_its_own() -> None:
    own = "class Own:\n    def __init__(self):\n        self._steps = 1\n\n    @classmethod\n    def of(cls):\n"
    assert not [
        *changed(own + "        made = cls()\n        made._steps = 2\n        monkeypatch.setattr(os, 'fsync', 1)")
    ]
