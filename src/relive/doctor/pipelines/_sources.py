"""Other projects' source code, where it was fetched: the environment variable `RELIVE_SOURCES` names its folder."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_imported: dict[Path, Any] = {}


class Absent(MetaPathFinder, Loader):
    """Modules that a project imports, and that storing and drawing do not need, where they are not installed.

    Each has the attributes that are given for it, and of every other name an empty class.
    """

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self._given, self._roots = given, {name.partition(".")[0] for name in given}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module of the given packages, after all other finders have not."""
        del path, target
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in self._roots else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        vars(module).update(self._given.get(module.__name__, {}), __getattr__=_named)


def _named(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda *_, **__: None})


def imported(project: str, module: str, absent: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """Import a module of a fetched project; None where it was not fetched.

    Args:
        project: The name of its folder in `RELIVE_SOURCES`.
        module: The module's file in it, without its ending; of the project it imports modules of its own folder alone.
        absent: What it gets for packages that are not installed: attributes of each of their modules.
    """
    folder = os.environ.get("RELIVE_SOURCES", "")
    file = Path(folder, project, f"{module}.py").resolve()
    if not folder or not file.exists():
        return None
    if file not in _imported:
        root = f"relive_source_{len(_imported)}_{project}"
        for parent in [*Path(root, module).parents][:-1]:
            name = ".".join(parent.parts)
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [str(file.parent)] if len(parent.parts) == len(Path(module).parts) else []
        finder = Absent({root: {}, **(absent or {})})
        sys.meta_path.append(finder)
        try:
            _imported[file] = importlib.import_module(".".join(Path(root, module).parts))
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name, value in sys.modules.items() if getattr(value, "__loader__", 0) is finder]:
                del sys.modules[name]
    return _imported[file]
