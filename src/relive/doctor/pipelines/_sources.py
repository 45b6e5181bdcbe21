"""Other projects' source code, where it was fetched: the environment variable `RELIVE_SOURCES` names its folder."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


def imported(project: str, folder: str, module: str, stubs: Mapping[str, Any] | None = None) -> Any:
    """Import a module of a fetched project; None where it was not fetched.

    Args:
        project: The name of its folder in `RELIVE_SOURCES`.
        folder: The folder of the module in it; its siblings can be imported from there.
        module: The name of the module.
        stubs: Attributes of modules that it imports, and that are not needed to store and to draw.
    """
    place = Path(os.environ.get("RELIVE_SOURCES", ""), project, folder)
    if not os.environ.get("RELIVE_SOURCES") or not (place / f"{module}.py").exists():
        return None
    name = f"relive_source_{project}"
    for old in [loaded for loaded in sys.modules if loaded.partition(".")[0] == name]:
        del sys.modules[old]
    package = ModuleType(name)
    package.__path__ = [str(place)]
    sys.modules[name] = package
    absent = {stub: values for stub, values in (stubs or {}).items() if stub not in sys.modules}
    for stub, attributes in absent.items():
        sys.modules[stub] = ModuleType(stub)
        vars(sys.modules[stub]).update(attributes)
    try:
        return importlib.import_module(f"{name}.{module}")
    finally:
        for stub in absent:
            del sys.modules[stub]
