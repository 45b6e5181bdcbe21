"""Sizes, forbidden constructs, one version, and what ships."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from house import cpp_code, python_code
from source_tree import MODULES, ROOT, SOURCE, Module, parsed, place

import relive

# They run what a file says, or hide a failure.
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
# The one that may name `pickle`: `Unpickler`, as the base of classes that look up names and references themselves.
UNPICKLES = "relive.trajectories.rlinf._pickle"
UNSAFE_CALLS = {"eval", "exec", "print", "__import__"}


@pytest.mark.parametrize(
    ("count", "text", "code"),
    [
        (python_code, '"""Module."""\n\n# why\nx = 1  # what\n', 1),
        (python_code, 'def f():\n    """One.\n\n    Two.\n    """\n    return (\n        1\n    )\n', 4),
        (python_code, 'class A:\n    """A."""\n\n    text = """a\n# no comment\n\n"""\n', 5),
        (python_code, 'if x:\n    """No docstring."""\n', 2),
        (cpp_code, "// why\n\nint x;  // what\n", 1),
        (cpp_code, "/* one\n\n two */\n/* a */ int x;\nint y; /* b */\n", 2),
        (cpp_code, "/**\n * one\n */\n#include <x>\n", 1),
    ],
)
def test_meta_only_code_counts(count: Callable[[str], int], text: str, code: int) -> None:
    assert count(text) == code


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    """Check, since all their folders are on one path, and the first of two imported would replace both."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert max(names.values()) == 1, names.most_common(3)


def forbidden(module: Module) -> list[str]:
    """List every construct of the module that the library does without."""
    found: list[tuple[ast.AST, str]] = []
    for node in module.nodes:
        if module.name == UNPICKLES and inert(node):
            continue
        if isinstance(node, ast.Assert):
            found.append((node, "assert, which -O removes"))
        elif isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            found.append((node, str(node.module)))
        elif isinstance(node, ast.Call):
            found += [(node, fault) for fault in forbidden_call(node)]
    return [f"{place(module.path, node)}: {fault}" for node, fault in found]


def inert(node: ast.AST) -> bool:
    """Return True if it imports `Unpickler` alone."""
    if not isinstance(node, ast.ImportFrom) or node.module != "pickle":
        return False
    return [(alias.name, alias.asname) for alias in node.names] == [("Unpickler", None)]


def unpickling(module: Module) -> list[str]:
    """List every use of `Unpickler` except as the base of a class with its own methods for names and references."""
    bases = {}
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            bases.update({id(base): own >= {"find_class", "persistent_load"} for base in node.bases})
    uses = [node for node in module.nodes if isinstance(node, ast.Name) and node.id == "Unpickler"]
    supers = [node for node in module.nodes if isinstance(node, ast.Name) and node.id == "super"]
    return [place(module.path, node) for node in [*uses, *supers] if not bases.get(id(node))]


def forbidden_call(call: ast.Call) -> list[str]:
    keywords = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
    called = call.func
    name = ast.unparse(called) if isinstance(getattr(called, "value", called), ast.Name) else ""
    found = [f"{name}()"] if name in UNSAFE_CALLS else []
    if keywords.get("allow_pickle", False) is not False:
        found.append("allow_pickle")
    if name == "torch.load" and keywords.get("weights_only") is not True:
        found.append("torch.load without weights_only=True")
    if keywords.get("shell", False) is not False:
        found.append("a shell")
    return found


def test_nothing_forbidden() -> None:
    found = [fault for module in MODULES for fault in forbidden(module)]
    found += [fault for module in MODULES if module.name == UNPICKLES for fault in unpickling(module)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "assert x",
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "exec('1')",
        "print(1)",
        "numpy.load(f, allow_pickle=True)",
        "torch.load(f)",
        "run('ls', shell=True)",
    ],
)
def test_meta_a_forbidden_construct_is_found(text: str) -> None:
    assert len(forbidden(parsed("relive.bad", text))) == 1


INERT = """
from pickle import Unpickler
class Tree(Unpickler):
    def find_class(self, module, name): ...
    def persistent_load(self, pid): ...
"""


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (("", ""), 0),
        (("Unpickler\n", "Unpickler, loads\n"), 1),
        (("from pickle import Unpickler", "import pickle"), 1),
        (("find_class", "find"), 1),
        (("persistent_load", "persistent"), 1),
        (("...", "return super().find_class(module, name)"), 2),
        (("class Tree", "Unpickler(file).load()\nclass Tree"), 1),
    ],
)
def test_meta_an_unpickler_that_is_not_inert_is_found(change: tuple[str, str], faults: int) -> None:
    module = parsed(UNPICKLES, INERT.replace(*change))
    assert len(forbidden(module) + unpickling(module)) == faults
    assert len(forbidden(parsed("relive.other", INERT))) == 1


def test_the_version_stands_in_one_place() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in settings["project"]["dynamic"]
    source = ROOT / settings["tool"]["scikit-build"]["metadata"]["version"]["input"]
    found = re.findall(r'^__version__ = "(.+)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == [relive.__version__]
    assert f"## [{relive.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_an_installed_relive_says_the_same_version() -> None:
    versions = {dist.version for dist in importlib.metadata.distributions() if dist.name == "relive"}
    assert versions <= {relive.__version__}


def test_type_checkers_are_told_that_relive_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()
    assert (Path(relive.__file__).parent / "py.typed").is_file()


def test_pins_name_each_package_once_and_no_registry() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin) for pin in pins)
    names = [pin.split("==")[0] for pin in pins]
    assert len(names) == len(set(names))
    assert names[0] == "torch"
    assert not any("://" in line for line in lines)


@pytest.mark.parametrize("folder", [".", "lab"])
def test_every_direct_dependency_is_pinned(folder: str) -> None:
    settings = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    wanted = [*settings["build-system"]["requires"], *project["dependencies"]]
    wanted += [name for extra in project["optional-dependencies"].values() for name in extra]
    names = {re.split(r"[\[<>=~ ]", requirement)[0] for requirement in wanted} - {"relive", "relive-lab"}
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    assert names <= pinned, names - pinned
