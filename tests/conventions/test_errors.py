"""Every error that relive raises on purpose is composed by `message` or `event`, so that it has one of two forms."""

from __future__ import annotations

import ast
import inspect

import pytest
from house import walked
from source_tree import MODULES, Module, parsed, place

import relive.errors

ERRORS = {
    name
    for name, value in vars(relive.errors).items()
    if inspect.isclass(value) and issubclass(value, relive.errors.ReliveError)
}
COMPOSERS = {"message", "event"}
# The native kernels compose some texts, and these functions pass them on; tests/error_text asserts the texts.
HANDED_ON = {"relive._ring.kernels._native"}


class Grammar:
    """Decides, inside one module, whether an expression's text comes from `message` or `event`."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.owner: dict[ast.AST, ast.FunctionDef] = {}
        for node in walked(module.tree):
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, []).append(node)
                # Inner functions are walked later and overwrite this: a node belongs to the innermost one.
                self.owner.update(dict.fromkeys(walked(node), node))

    def composed(self, value: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
        if isinstance(value, ast.Call):
            name = _last_name(value.func)
            if name in COMPOSERS:
                return True
            bodies = self.functions.get(name, []) if name not in seen else []
            return bool(bodies) and all(self._returns_composed(body, seen | {name}) for body in bodies)
        if isinstance(value, ast.IfExp):
            return self.composed(value.body, seen) and self.composed(value.orelse, seen)
        if isinstance(value, ast.Name):
            assigned = self._assigned(value)
            return bool(assigned) and all(self.composed(one, seen) for one in assigned)
        return False

    def faults(self) -> list[str]:
        return [
            f"{place(self.module.path, node)}: {_last_name(node.func)} without message(...) or event(...)"
            for node in self.module.nodes
            if isinstance(node, ast.Call)
            and _last_name(node.func) in ERRORS
            and not (len(node.args) == 1 and self.composed(node.args[0]))
            and f"{self.module.name}.{self._function_of(node)}" not in HANDED_ON
        ]

    def _function_of(self, node: ast.AST) -> str:
        owner = self.owner.get(node)
        return owner.name if owner else ""

    def _returns_composed(self, function: ast.FunctionDef, seen: frozenset[str]) -> bool:
        returned = [node.value for node in walked(function) if isinstance(node, ast.Return)]
        return bool(returned) and all(value is not None and self.composed(value, seen) for value in returned)

    def _assigned(self, name: ast.Name) -> list[ast.expr]:
        owner = self.owner.get(name)
        return [
            node.value
            for node in walked(owner or self.module.tree)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name.id for t in node.targets)
        ]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_errors_are_composed_by_message() -> None:
    found = [fault for module in MODULES for fault in Grammar(module).faults()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "raise SchemaError('bad shape')",
        "raise errors.ArgumentError(f'{x} is bad')",
        "raise StaleId()",
        "def f():\n    text = 'bad'\n    raise PriorityError(text)",
        "def f():\n    raise SchemaError(g())\ndef g():\n    return 'bad'",
    ],
)
def test_meta_free_text_is_found(text: str) -> None:
    assert len(Grammar(parsed("relive.bad", text)).faults()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "raise SchemaError(message('a', 'b', '$'))",
        "raise StorageError(event('a', '$'))",
        "def f():\n    text = message('a', 'b', '$')\n    raise errors.PriorityError(text) from None",
        "def f():\n    raise SchemaError(g())\ndef g():\n    return message('a', 'b', '$') if x else message('c', 'd')",
        "def f():\n    raise g()\ndef g():\n    return StaleId(message('a', 'b', '$'))",
    ],
)
def test_meta_composed_text_passes(text: str) -> None:
    assert not Grammar(parsed("relive.good", text)).faults()
