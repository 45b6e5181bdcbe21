"""Every public name explains itself and shows an example, and every example runs."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import linecache
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from needs import needs
from source_tree import MODULES

from relive.errors import MissingExtra

# The modules whose names a user imports.
FACES = [
    "relive",
    "relive.doctor",
    "relive.errors",
    "relive.gymnasium",
    "relive.minari",
    "relive.simulators",
    "relive.testing",
    "relive.trajectories",
    "relive_lab",
    "relive_lab.envs",
]
# Other libraries' buffers, where these are installed.
ADAPTERS = {"relive.sb3": "stable_baselines3", "relive.tianshou": "tianshou", "relive.torchrl": "torchrl"}
FACES += [face for face, library in ADAPTERS.items() if importlib.util.find_spec(library)]
WITHOUT_EXAMPLE = {"relive.trajectories.Contents", "relive.trajectories.Inspection"}  # the functions have it


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of a module: those it lists, or else those defined in it or inside it."""
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if hasattr(module, "__all__") or f"{value.__module__}.".startswith(f"{module.__name__}."):
            yield f"{module.__name__}.{name}", value


PUBLIC = dict(pair for face in FACES for pair in public_names(importlib.import_module(face)))


def test_no_face_is_passed_over() -> None:
    assert {name.rpartition(".")[0] for name in PUBLIC} == set(FACES)


# Modules whose examples use a library that may not be there.
NEEDED = {"relive_lab.envs.prices": "skfolio", "relive.minari": "minari"}


def own_members(value: Any) -> Iterator[tuple[str, str]]:
    """Yield public methods and properties that a class defines itself, with their docstrings."""
    for name, member in vars(value).items():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(member, property)):
            yield name, inspect.getdoc(function) or ""


@pytest.mark.parametrize("name", [module.name for module in MODULES if ">>>" in module.path.read_text("utf-8")])
def test_the_examples_of_a_module_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in NEEDED:
        needs(NEEDED[name])
    try:
        module = importlib.import_module(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    linecache.clearcache()  # which doctest looks up file by file, for each docstring
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert not result.failed, capsys.readouterr().out


def test_a_public_name_has_a_docstring_with_an_example() -> None:
    for name, value in PUBLIC.items():
        own = value.__doc__ or ""
        # A dataclass without a docstring is given its signature as one.
        assert own, f"{name} has no docstring"
        assert not own.startswith(f"{value.__name__}("), f"{name} has no docstring"
        members = dict(own_members(value)) if inspect.isclass(value) else {}
        assert all(members.values()), f"{name}: {[member for member, text in members.items() if not text]} undocumented"
        error = inspect.isclass(value) and issubclass(value, BaseException | Warning)
        if not error and name not in WITHOUT_EXAMPLE:
            assert any(">>>" in text for text in (own, *members.values())), f"{name} shows no example"


def test_meta_a_wrong_example_fails(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("wrong", ">>> 1 + 1\n3\n")
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 1
    assert "Expected:" in capsys.readouterr().out
