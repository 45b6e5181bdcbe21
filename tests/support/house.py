"""Measures of a checkout's structure, as a Markdown table.

`python tests/support/house.py [CHECKOUT] [--beside PATH] [--list]`.

A room is a module or a package directly in `src/relive`; an arrow is a pair of rooms of which the first imports the
second, inside functions and for type checkers included. It points upward where the second room's highest module has a
higher layer in `tests/conventions/test_layers.py` of the same checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

LONG = 300  # lines of code
# Not part of replay proper. The last three names are those of modules that became `_adapters`.
AROUND = {"lab", "cpprb", "sb3", "tianshou", "torchrl", "gymnasium", "minari", "_adapters", "ray", "checkpoints"}
AROUND |= {"simulators", "trajectories", "doctor", "cli", "testing", "_counted", "_episodes", "_offline"}
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_lines(path: Path) -> int:
    """Lines of a Python or C++ file that hold code: no docstrings, comments or blank lines."""
    text = path.read_text(encoding="utf-8")
    return python_code(text) if path.suffix == ".py" else cpp_code(text)


def python_code(text: str) -> int:
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in LAYOUT]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def cpp_code(text: str) -> int:
    count, commented = 0, False
    for line in map(str.strip, text.splitlines()):
        if not commented and line.startswith("/*"):
            commented, line = True, line[2:]
        if commented:
            _, end, line = line.partition("*/")
            commented, line = not end, line.strip()
        count += line != "" and not line.startswith("//")
    return count


class Checkout:
    """The modules of one checkout. Each method that is a measure lists what it counts."""

    def __init__(self, root: Path) -> None:
        self.root, self.source = root, root / "src" / "relive"
        self.files = {path.relative_to(self.source): path for path in sorted(self.source.rglob("*.py"))}
        self.trees = {path: ast.parse(file.read_text(encoding="utf-8")) for path, file in self.files.items()}

    def nodes(self, kind: Any) -> Iterator[tuple[str, Any]]:
        """Every node of a kind, and its place."""
        for path, tree in self.trees.items():
            yield from ((f"{path}:{node.lineno}", node) for node in ast.walk(tree) if isinstance(node, kind))

    def entries(self) -> list[str]:
        names = sorted(path.name for path in self.source.iterdir())
        return [name for name in names if name != "__pycache__" and not name.endswith(".so")]

    def rooms(self) -> list[str]:
        return [name.split(".")[0] for name in self.entries() if name != "py.typed"]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        rooms, found = set(self.rooms()), set()
        for path, tree in self.trees.items():
            package = ("relive", *path.parts[:-1])
            for node in ast.walk(tree):
                names: list[tuple[str, ...]] = []
                if isinstance(node, ast.Import):
                    names = [tuple(alias.name.split(".")) for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    base = package[: len(package) + 1 - node.level] if node.level else ()
                    base += tuple((node.module or "").split(".")) if node.module else ()
                    names = [(*base, alias.name) for alias in node.names]
                own = [
                    name[1] if name[1:] and name[1] in rooms else "__init__" for name in names if name[0] == "relive"
                ]
                found |= {(room(path), name) for name in own}
        return sorted(pair for pair in found if pair[0] != pair[1])

    def arrows(self) -> list[str]:
        return [" -> ".join(pair) for pair in self.pairs]

    def arrows_upward(self) -> list[str]:
        text = (self.root / "tests" / "conventions" / "test_layers.py").read_text(encoding="utf-8")
        table: Any = re.search(r"^LAYERS = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
        layers: dict[str, int] = {}
        for name, layer in ast.literal_eval(table[1]).items():
            top = name.split(".")[1] if "." in name else "__init__"
            layers[top] = max(layer, layers.get(top, 0))
        return [f"{one} -> {two}" for one, two in self.pairs if layers[one] < layers[two]]

    def link_branches(self) -> list[str]:
        texts = ((at, ast.unparse(node)) for at, node in self.nodes(ast.Compare))
        return [f"{at}: {text}" for at, text in texts if re.search(r"\b_link is (not )?None", text)]

    def redeclared(self) -> list[str]:
        """Annotated names without a value in the base classes of `ReplayBuffer`."""
        tree = self.trees[Path("buffer.py")]
        buffer = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        bases = {ast.unparse(base) for base in buffer.bases}
        froms = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
        homes = {alias.name: Path(*(node.module or "").split(".")) for node in froms for alias in node.names}
        bodies = [self.trees[homes[base].with_suffix(".py")].body for base in sorted(bases & homes.keys())]
        classes = [node for body in bodies for node in body if isinstance(node, ast.ClassDef) and node.name in bases]
        named = [(node.name, part) for node in classes for part in node.body if isinstance(part, ast.AnnAssign)]
        return [f"{name}.{ast.unparse(part.target)}" for name, part in named if part.value is None]

    def class_checks(self) -> list[str]:
        """Checks for the class of a sampler or an item, outside their packages and the trainers."""
        own = ("samplers/", "items/")
        classes = {node.name for at, node in self.nodes(ast.ClassDef) if at.startswith(own)}
        calls = [(at, node) for at, node in self.nodes(ast.Call) if not at.startswith((*own, "lab/"))]
        checks = [(at, node) for at, node in calls if getattr(node.func, "id", "") in ("isinstance", "issubclass")]
        texts = [(at, node, re.findall(r"\w+", ast.unparse(node.args[1]))) for at, node in checks]
        return [f"{at}: {ast.unparse(node)}" for at, node, names in texts if classes.intersection(names)]

    def memories(self) -> list[str]:
        return [at for at, node in self.nodes(ast.ClassDef) if node.name == "_Memory"]

    def tree_maps(self) -> list[str]:
        """Functions that build a mapping of what they give for the values of a mapping."""
        return [f"{at}: {node.name}" for at, node in self.nodes(ast.FunctionDef) if maps_a_tree(node)]

    def wheel(self) -> list[str]:
        return [f"{path}: {lines(file)}" for path, file in self.files.items()]

    def without_lab(self) -> list[str]:
        return [f"{path}: {lines(file)}" for path, file in self.files.items() if room(path) != "lab"]

    def replay_proper(self) -> list[str]:
        return [f"{path}: {lines(file)}" for path, file in self.files.items() if room(path) not in AROUND]

    def tests(self) -> list[str]:
        return [f"{file.relative_to(self.root)}: {lines(file)}" for file in sorted((self.root / "tests").rglob("*.py"))]

    def long_files(self) -> list[str]:
        files = [*self.files.values(), *sorted((self.root / "native").glob("*.[ch]pp"))]
        counts = [(file.relative_to(self.root), code_lines(file)) for file in files]
        return [f"{path}: {count}" for path, count in counts if count > LONG]


def room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def maps_a_tree(function: ast.FunctionDef) -> bool:
    inner = [node for made in ast.walk(function) if isinstance(made, ast.DictComp) for node in ast.walk(made.value)]
    called = [node.func for node in inner if isinstance(node, ast.Call)]
    return function.name in [getattr(call, "id", getattr(call, "attr", "")) for call in called]


def total(listed: list[str]) -> int:
    return sum(int(line.rpartition(": ")[2]) for line in listed)


MEASURES: dict[str, tuple[Any, Any]] = {
    "entries of `ls src/relive`": (Checkout.entries, len),
    "rooms": (Checkout.rooms, len),
    "arrows of imports": (Checkout.arrows, len),
    "arrows upward": (Checkout.arrows_upward, len),
    "branches on `_link is None`": (Checkout.link_branches, len),
    "attributes re-declared by mixins": (Checkout.redeclared, len),
    "class checks on samplers and items": (Checkout.class_checks, len),
    "classes named `_Memory`": (Checkout.memories, len),
    "tree maps": (Checkout.tree_maps, len),
    "lines of replay proper": (Checkout.replay_proper, total),
    "lines of the wheel": (Checkout.wheel, total),
    "lines of the wheel without `lab`": (Checkout.without_lab, total),
    "lines of tests": (Checkout.tests, total),
    f"files over {LONG} lines of code": (Checkout.long_files, len),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures of a checkout's structure.")
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="PATH", help="a further column")
    parser.add_argument("--list", action="store_true", help="show what was counted, too")
    given = parser.parse_args()
    checkouts = [Checkout(path.resolve()) for path in [given.checkout, *given.beside]]
    found = {name: [listing(each) for each in checkouts] for name, (listing, _) in MEASURES.items()}
    print("| |", " | ".join(each.root.name for each in checkouts), "|")
    print("|---" * (len(checkouts) + 1) + "|")
    for name, columns in found.items():
        print("|", " | ".join([name, *(f"{MEASURES[name][1](column):,}" for column in columns)]), "|")
    for name, columns in found.items() if given.list else ():
        for each, column in zip(checkouts, columns, strict=True):
            print(f"\n{each.root.name}, {name}:", *column, sep="\n  ")


if __name__ == "__main__":
    main()
