"""The budget: how large each room may be, and how much there may be of what makes a house hard to change.

`python tests/conventions/test_budget.py` writes `budget.toml` anew where numbers became smaller. A number is raised by
hand, in a commit that does nothing else and says who needs what the lines do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))  # run as a script

from house import MEASURES, Checkout

BUDGET = Path(__file__).with_name("budget.toml")
SLACK = 0.03  # what a number may be below its budget before that is written down
COUNTED = {
    "circles": "circles of imports",
    "arrows_upward": "arrows upward",
    "class_checks": "class checks on samplers and items",
    "tree_maps": "tree maps",
    "class_names": "class names with several meanings",
    "private_names": "private names where public ones are meant",
    "long_functions": "functions over 60 lines",
    "long_files": "files over 300 lines of code",
    "moods": "docstrings out of the mood",
}


def measured(house: Checkout) -> dict[str, dict[str, int]]:
    counts = {name: MEASURES[measure][1](MEASURES[measure][0](house)) for name, measure in COUNTED.items()}
    return {"counts": counts, "lines": house.code()}


def faults(budget: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> list[str]:
    found = []
    for kind, numbers in now.items():
        for name in sorted(numbers.keys() | budget[kind].keys()):
            has, may = numbers.get(name), budget[kind].get(name)
            if may is None:
                found.append(f"{kind}.{name} has {has} and no budget")
            elif has is None:
                found.append(f"{kind}.{name} has a budget of {may}, and is not there")
            elif has > may:
                found.append(f"{kind}.{name} has {has}, more than its budget of {may}")
            elif has < may * (1 - SLACK):
                found.append(f"{kind}.{name} has {has}, less than its budget of {may}: write that down")
    return found


def read(text: str) -> dict[str, dict[str, int]]:
    return tomllib.loads(text)


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, int]]:
    return measured(Checkout(ROOT))


def test_the_budget_holds(now: dict[str, dict[str, int]]) -> None:
    found = faults(read(BUDGET.read_text(encoding="utf-8")), now)
    assert not found, "\n".join([*found, "`python tests/support/house.py --list` shows what is counted"])


@pytest.mark.parametrize("kind", ["counts", "lines"])
def test_meta_each_number_fails_above_and_below(kind: str, now: dict[str, dict[str, int]]) -> None:
    budget = read(BUDGET.read_text(encoding="utf-8"))
    for name, number in budget[kind].items():
        for other in (number + 1, int(number * (1 - SLACK)) - 1):
            changed = {**now, kind: {**budget[kind], name: other}}
            assert len(faults({**now, kind: budget[kind]}, changed)) == 1, (name, other)


HOUSE = {
    "__init__.py": "",
    "_base/__init__.py": "",
    "buffer.py": "from ._base.planted import f\n\n\nclass ReplayBuffer:\n    pass\n",
    "samplers/__init__.py": "from .uniform import Uniform\n",
    "samplers/uniform.py": "class Uniform:\n    pass\n",
    "sb3/__init__.py": "",
}
PLANTED = [
    ("circles", 1, "def f():\n    from relive.buffer import ReplayBuffer\n"),
    ("circles", 1, "if TYPE_CHECKING:\n    from ..buffer import ReplayBuffer\n"),
    ("circles", 1, "import_module('relive.buffer')\n"),
    ("arrows_upward", 1, "def f():\n    from ..sb3 import ReplayBuffer\n"),
    ("class_checks", 1, "from ..samplers import Uniform\nf = isinstance(x, Uniform)\n"),
    ("class_checks", 0, "from ray import Uniform\nf = isinstance(x, Uniform)\n"),
    ("tree_maps", 1, "def f(x):\n    return {name: f(value) for name, value in x.items()}\n"),
    ("class_names", 1, "class Uniform:\n    pass\n"),
    ("private_names", 1, "core = buffer._core\n"),
    ("long_functions", 1, "def f():\n" + "    x = 1\n" * 61),
    ("long_files", 1, "x = 1\n" * 301),
    ("moods", 1, 'def f():\n    """Whether it rains."""\n'),
]


@pytest.mark.parametrize(("name", "faults", "text"), PLANTED)
def test_meta_a_planted_fault_is_counted(name: str, faults: int, text: str, tmp_path: Path) -> None:
    layers = {"tests/conventions/test_layers.py": (ROOT / "tests/conventions/test_layers.py").read_text("utf-8")}
    for file, content in (layers | {f"src/relive/{file}": content for file, content in HOUSE.items()}).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    listing, count = MEASURES[COUNTED[name]]
    assert count(listing(Checkout(tmp_path))) == 0
    room = "sb3" if name == "private_names" else "_base"
    (tmp_path / "src" / "relive" / room / "planted.py").write_text(text, encoding="utf-8")
    assert count(listing(Checkout(tmp_path))) == faults


def test_meta_each_number_is_planted() -> None:
    assert {name for name, faults, _ in PLANTED if faults} == COUNTED.keys()


def raised(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> list[str]:
    """List the numbers of a budget that a change raised."""
    pairs = [(f"{kind}.{name}", before.get(kind, {}).get(name), n) for kind in after for name, n in after[kind].items()]
    return [name for name, old, new in pairs if old is not None and new > old]


def test_a_number_is_raised_alone() -> None:
    """Check that each commit of a clone that raises a number changes nothing but the budget."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
        if done.returncode:
            pytest.skip("not a clone")
        return done.stdout

    name = str(BUDGET.relative_to(ROOT))
    versions = git("log", "--format=%H", "--no-merges", "-n", "50", "--", name).split()
    for commit, before in pairwise(versions):
        numbers = [read(git("show", f"{each}:{name}")) for each in (before, commit)]
        changed = git("show", "--format=", "--name-only", commit).split()
        assert not raised(*numbers) or changed == [name], f"{commit} raises {raised(*numbers)}"


def test_meta_a_raised_number_is_seen() -> None:
    assert raised({"lines": {"a": 3, "b": 2}}, {"lines": {"a": 3, "b": 4, "c": 9}}) == ["lines.b"]


def write() -> None:
    """Lower each number that is above what there is; add what has none."""
    text = BUDGET.read_text(encoding="utf-8") if BUDGET.is_file() else ""
    head = re.match(r"(#.*\n)*", text)
    budget, now = read(text), measured(Checkout(ROOT))
    lines = [head[0] if head else ""]
    for kind, numbers in now.items():
        lines.append(f"\n[{kind}]\n")
        lines += [f"{name} = {min(n, budget.get(kind, {}).get(name, n))}\n" for name, n in sorted(numbers.items())]
    BUDGET.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
