"""What the convention tests read: the repository's own files, parsed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import house

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "relive"
PACKAGES = [SOURCE, ROOT / "lab" / "src" / "relive_lab"]


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    path: Path
    text: str | None = None

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        text = self.path.read_text(encoding="utf-8") if self.text is None else self.text
        return house.parsed(text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return house.walked(self.tree)

    @cached_property
    def imports(self) -> list[tuple[ast.AST, str, str, str]]:
        """Its imports: the node, the origin, the name taken from there, and its name here."""
        return [*house.imports(self.tree, house.package_of(self.name, self.path))]


def parsed(name: str, text: str, *, is_package: bool = False) -> Module:
    """Parse a module that exists only in a test."""
    return Module(name, Path("__init__.py" if is_package else "module.py"), text)


def modules() -> list[Module]:
    """List every module of relive and of relive-lab, in the order of names."""
    found = []
    for package, path in sorted((root, path) for root in PACKAGES for path in root.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path))
    return found


MODULES = modules()
NAMES = [module.name for module in MODULES]


def place(path: Path, node: ast.AST) -> str:
    """Format the position of a node as `file:line`."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{name}:{getattr(node, 'lineno', 0)}"
