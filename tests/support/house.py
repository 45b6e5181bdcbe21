"""Measures of a checkout's structure, as a Markdown table.

`python tests/support/house.py [CHECKOUT] [--beside PATH] [--list]`.

A room is a module or a package directly in `src/relive`; an arrow is a pair of rooms of which the first imports the
second, inside functions and for type checkers included. It points upward where the second room's highest module has a
higher layer in `tests/conventions/test_layers.py` of the same checkout.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

LONG, LONGEST = 300, 60  # lines of code of a file, of a function
# Rooms for which public names are enough.
AS_USERS = {"sb3", "tianshou", "torchrl", "gymnasium", "minari", "lerobot", "simulators", "trajectories"}
AS_USERS |= {"doctor", "mixture", "_adapters", "cli"}
QUESTIONS = {"what", "which", "whether", "where", "how", "who", "why", "when"}
# What a function's docstring may begin with.
VERBS = set((Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split())
# Comments, and strings of one line or several.
STRINGS = re.compile(r"""#[^\n]*|("{3}|'{3}|["'])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)


def code_lines(path: Path) -> int:
    """Count the lines of a Python or C++ file that hold code: no docstrings, comments or blank lines."""
    text = path.read_text(encoding="utf-8")
    return python_code(text) if path.suffix == ".py" else cpp_code(text)


@cache
def python_code(text: str) -> int:
    found = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    last, end, number = ":", 0, 1  # the character of code before, and its line
    for string in STRINGS.finditer(text):
        between = text[end : string.start()]
        number += between.count("\n")
        last = (last + between).rstrip()[-1]
        if string[1]:
            inner = range(number, number + string[0].count("\n") + 1)
            if last == ":" and is_docstring(text, string.start()):
                found.difference_update(inner)
            elif len(string[1]) == 3:
                found.update(inner)
            last, number = string[1], inner[-1]
        end = string.end()
    return len(found)


def is_docstring(text: str, at: int) -> bool:
    """Return whether a string, the first thing in a block, is that of a function, class or module."""
    begin = text.rfind("\n", 0, at) + 1
    indent = at - begin
    alone = not text[begin:at].strip(" r")
    while alone and begin:
        end, begin = begin - 1, text.rfind("\n", 0, begin - 1) + 1
        line = text[begin:end]
        if line.strip() and len(line) - len(line.lstrip()) < indent and line.lstrip()[0] not in "#)]":
            return line.lstrip().startswith(("def ", "async def ", "class "))
    return alone


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def walked(tree: ast.AST) -> list[ast.AST]:
    """List what `ast.walk` yields, once, but for marks of names as read or written."""
    found = [tree]
    for node in found:
        found += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr_context)]
    return found


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
        self.trees = {path: parsed(file.read_text(encoding="utf-8")) for path, file in self.files.items()}

    @cached_property
    def walked(self) -> dict[Path, list[ast.AST]]:
        """Every node of each module."""
        return {path: walked(tree) for path, tree in self.trees.items()}

    def nodes(self, kind: Any) -> Iterator[tuple[str, Any]]:
        """Yield every node of a kind, and its position."""
        for path, nodes in self.walked.items():
            yield from ((f"{path}:{node.lineno}", node) for node in nodes if isinstance(node, kind))

    def entries(self) -> list[str]:
        names = sorted(path.name for path in self.source.iterdir())
        return [name for name in names if name != "__pycache__" and not name.endswith(".so")]

    def rooms(self) -> list[str]:
        return [name.split(".")[0] for name in self.entries() if name != "py.typed"]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        rooms, found = set(self.rooms()), set()
        for name, path in self.modules.items():
            if name.split(".")[0] == "relive":
                for base, own, _ in self.taken[name]:
                    full = f"{base}.{own}".strip(".").split(".")
                    target = full[1] if full[1:] and full[1] in rooms else "__init__"
                    found |= {(room(path.relative_to(self.source)), target)} if full[0] == "relive" else set()
        return sorted(pair for pair in found if pair[0] != pair[1])

    @cached_property
    def modules(self) -> dict[str, Path]:
        """The files of relive's and the lab's modules, by their names."""
        return {
            ".".join((package, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__"): path
            for package, source in (("relive", self.source), ("relive_lab", self.root / "lab" / "src" / "relive_lab"))
            for path in source.rglob("*.py")
        }

    @cached_property
    def taken(self) -> dict[str, list[tuple[str, str, str]]]:
        """For each module, the origin of every import, the name, and its name here."""
        return {
            name: [found[1:] for found in imports(parsed(path.read_text(encoding="utf-8")), package_of(name, path))]
            for name, path in self.modules.items()
        }

    @cached_property
    def homes(self) -> dict[str, set[tuple[str, str]]]:
        """For each module, the names that it imports and their modules, inside functions and for type checkers, too.

        A name that a package hands on leads to the module that has it.
        """
        taken = self.taken
        given = {f"{name}.{as_name}": (base, own) for name, found in taken.items() for base, own, as_name in found}

        def home(base: str, name: str) -> str | None:
            for _ in range(4):
                if f"{base}.{name}" in self.modules:
                    return f"{base}.{name}"
                if f"{base}.{name}" not in given:
                    break
                base, name = given[f"{base}.{name}"]
            return base if base in self.modules else None

        return {
            name: {(as_name, to) for base, own, as_name in found if (to := home(base, own))}
            for name, found in taken.items()
        }

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """The modules that every module imports."""
        return {name: {to for _, to in found} - {name} for name, found in self.homes.items()}

    def circles(self) -> list[str]:
        """List sets of modules that need each other."""
        reach = {name: set(targets) for name, targets in self.graph.items()}
        grown = True
        while grown:
            grown = False
            for targets in reach.values():
                more = set().union(*(reach[target] for target in targets)) - targets
                targets |= more
                grown = grown or bool(more)
        found = {tuple(sorted({name} | {to for to in targets if name in reach[to]})) for name, targets in reach.items()}
        return [" <-> ".join(each) for each in sorted(found) if len(each) > 1]

    def arrows(self) -> list[str]:
        return [" -> ".join(pair) for pair in self.pairs]

    def arrows_upward(self) -> list[str]:
        text = (self.root / "tests" / "conventions" / "test_layers.py").read_text(encoding="utf-8")
        table: Any = re.search(r"^LAYERS = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
        layers: dict[str, int] = {}
        for name, layer in ast.literal_eval(table[1]).items():
            top = "__init__" if name == "relive" else name.removeprefix("relive.").split(".")[0]
            layers[top] = max(layer, layers.get(top, 0))
        return [f"{one} -> {two}" for one, two in self.pairs if layers[one] < layers[two]]

    def class_checks(self) -> list[str]:
        """List checks for the class of a sampler or an item, outside their packages and the trainers."""
        own = ("samplers/", "items/")
        classes = {node.name for at, node in self.nodes(ast.ClassDef) if at.startswith(own)}
        found = []
        for module, imported in self.homes.items():
            file = (
                self.modules[module].relative_to(self.root / "src") if module.split(".")[0] == "relive" else Path("lab")
            )
            at = str(Path(*file.parts[1:]))
            if file.parts[0] == "lab" or at.startswith(own):
                continue
            # Other libraries, and the doctor, have classes with these names, too.
            ours = {name for name, home in imported if home.split(".")[1:2] in (["samplers"], ["items"])} | {"relive"}
            for node in self.walked[Path(at)]:
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                    names = {*re.findall(r"\w+", ast.unparse(node.args[1]))}
                    found += [f"{at}:{node.lineno}: {ast.unparse(node)}"] if classes & names and ours & names else []
        return found

    def tree_maps(self) -> list[str]:
        """List functions that build a mapping of their own results for the values of a mapping."""
        return [f"{at}: {node.name}" for at, node in self.nodes(ast.FunctionDef) if maps_a_tree(node)]

    def class_names(self) -> list[str]:
        """List names of classes that several modules define."""
        homes: dict[str, list[str]] = {}
        for at, node in self.nodes(ast.ClassDef):
            homes.setdefault(node.name, []).append(at)
        return [f"{name}: {', '.join(places)}" for name, places in sorted(homes.items()) if len(places) > 1]

    def core_uses(self) -> list[str]:
        """List uses of a buffer's private parts, and imports of private rooms, in rooms that need only public names."""
        found = []
        for path, nodes in self.walked.items():
            if room(path) not in AS_USERS and path.parts[:2] != ("ray", "rllib"):
                continue
            for node in nodes:
                if isinstance(node, ast.Attribute) and node.attr in ("_core", "_ring", "_buffer"):
                    own = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr != "_core"
                    found += [] if own else [f"{path}:{node.lineno}: {ast.unparse(node)}"]
                elif isinstance(node, ast.ImportFrom) and {"_ring", "_buffer"} & {*(node.module or "").split(".")[:1]}:
                    found += [f"{path}:{node.lineno}: {ast.unparse(node)}"] if node.level > 1 else []
        return found

    def long_functions(self) -> list[str]:
        """List functions of more than `LONGEST` lines of code, docstrings and the signature's aside."""
        found = []
        for at, node in self.nodes((ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[ast.get_docstring(node) is not None :]
            count = (body[-1].end_lineno - body[0].lineno + 1) if body else 0
            found += [f"{at}: {node.name} has {count}"] if count > LONGEST else []
        return found

    def moods(self) -> list[str]:
        """List docstrings of functions that begin with no verb, and of others that begin with a question."""
        return [
            f"{at}: {text.splitlines()[0]}"
            for at, node in self.nodes((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if (text := ast.get_docstring(node)) and not in_the_mood(node, text)
        ]

    def code(self) -> dict[str, int]:
        """Count lines of code by room: of the package, and of the folders outside it."""
        rooms: dict[str, int] = {}
        for path, file in self.files.items():
            rooms[room(path)] = rooms.get(room(path), 0) + code_lines(file)
        beside = {
            "native": self.root.glob("native/*.[ch]pp"),
            "lab": self.root.glob("lab/src/**/*.py"),
            "tests": (file for part in (".", "lab") for file in self.root.glob(f"{part}/tests/**/*.py")),
            "benchmarks": self.root.glob("benchmarks/**/*.py"),
        }
        return rooms | {name: sum(map(code_lines, files)) for name, files in beside.items()}

    def wheel(self) -> list[str]:
        return [f"{path}: {lines(file)}" for path, file in self.files.items()]

    def tests(self) -> list[str]:
        return [f"{file.relative_to(self.root)}: {lines(file)}" for file in sorted((self.root / "tests").rglob("*.py"))]

    def long_files(self) -> list[str]:
        others = (sorted(self.root.glob(pattern)) for pattern in ("lab/src/**/*.py", "native/*.[ch]pp"))
        files = [*self.files.values(), *(file for found in others for file in found)]
        counts = [(file.relative_to(self.root), code_lines(file)) for file in files]
        return [f"{path}: {count}" for path, count in counts if count > LONG]


def room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def package_of(module: str, path: Path) -> str:
    """Return the package that a module's relative imports start from."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def imports(tree: ast.Module, package: str) -> Iterator[tuple[ast.AST, str, str, str]]:
    """Yield every import of a module: its node, the origin, the name taken from there, and its name here."""
    for node in walked(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, *alias.name.rpartition(".")[::2], ""
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            literal = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            yield node, *str(literal).rpartition(".")[::2], ""
        elif isinstance(node, ast.ImportFrom):
            steps = package.split(".")
            base = [*steps[: len(steps) + 1 - node.level]] if node.level else []
            base += [node.module] if node.module else []
            for alias in node.names:
                yield node, ".".join(base), alias.name, alias.asname or alias.name


def maps_a_tree(function: ast.FunctionDef) -> bool:
    inner = [node for made in walked(function) if isinstance(made, ast.DictComp) for node in walked(made.value)]
    called = [node.func for node in inner if isinstance(node, ast.Call)]
    return function.name in [getattr(call, "id", getattr(call, "attr", "")) for call in called]


def in_the_mood(node: ast.AST, text: str) -> bool:
    first = text.split()[0].strip("`,.:;").lower()
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return first not in QUESTIONS
    decorators = [ast.unparse(each) for each in node.decorator_list]
    noun = any(each.endswith("property") or each.endswith(".setter") for each in decorators)
    return first not in QUESTIONS if noun else first in VERBS


def total(listed: list[str]) -> int:
    return sum(int(line.rpartition(": ")[2]) for line in listed)


MEASURES: dict[str, tuple[Any, Any]] = {
    "entries of `ls src/relive`": (Checkout.entries, len),
    "rooms": (Checkout.rooms, len),
    "arrows of imports": (Checkout.arrows, len),
    "arrows upward": (Checkout.arrows_upward, len),
    "circles of imports": (Checkout.circles, len),
    "class checks on samplers and items": (Checkout.class_checks, len),
    "tree maps": (Checkout.tree_maps, len),
    "lines of the wheel": (Checkout.wheel, total),
    "lines of tests": (Checkout.tests, total),
    f"files over {LONG} lines of code": (Checkout.long_files, len),
    f"functions over {LONGEST} lines": (Checkout.long_functions, len),
    "class names with several meanings": (Checkout.class_names, len),
    "private names where public ones are meant": (Checkout.core_uses, len),
    "docstrings out of the mood": (Checkout.moods, len),
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
