"""LeRobot's own modules, where it is installed."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import MissingExtra, message


def lerobot(name: str, at: str) -> ModuleType:
    """Import the module `lerobot.NAME`.

    Raises:
        MissingExtra: LeRobot is not installed, or a package that this module needs.
    """
    try:
        return importlib.import_module(f"lerobot.{name}")
    except ModuleNotFoundError as error:
        wanted = f"the package `{(error.name or '').partition('.')[0]}`"
        raise MissingExtra(message(wanted, "none", at, "pip install 'lerobot[hilserl]'")) from error
