"""Show a project's fault, apply its patch, and show that the fault is gone.

`python upstream/check.py ogbench SOURCE` copies the project's source from the folder SOURCE, which stays as it is.
`python upstream/check.py --all FOLDER` does so for each project whose source lies in FOLDER under the name that its
folder has here. The exit status is 0 where each test is red before the patch and green after it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECTS = sorted(path.parent.name for path in HERE.glob("*/fix.patch"))


class NoVerdict(Exception):
    """A test that does not run, or is skipped."""


def tests(project: str, source: Path) -> bool:
    """Run the test of a project on a source; return whether it passes."""
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull]
    environment = {**os.environ, "UPSTREAM_SOURCE": str(source), "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    test = HERE / project / "test_fault.py"
    done = subprocess.run([*words, str(test)], env=environment, capture_output=True, text=True, cwd=source)
    skipped = re.search(r"^SKIPPED.*", done.stdout, re.M)
    if skipped:
        raise NoVerdict(skipped[0])
    if done.returncode not in (0, 1):
        raise NoVerdict(f"its test does not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def copy(project: str, source: Path, folder: Path) -> None:
    """Copy the top folders, or files, that a project's patch changes."""
    names = re.findall(r"^\+\+\+ b/([^/\n]+)", (HERE / project / "fix.patch").read_text("utf-8"), re.M)
    folder.mkdir(exist_ok=True)
    for name in set(names):
        copied = shutil.copytree if (source / name).is_dir() else shutil.copy
        copied(source / name, folder / name)


def mend(project: str, folder: Path) -> None:
    """Apply a project's patch to a copy of its source."""
    subprocess.run(["patch", "-p1", "-s", "-i", str(HERE / project / "fix.patch")], cwd=folder, check=True)


def check(project: str, source: Path) -> bool:
    """Show red, patch, show green; return whether both are so."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy(project, source, folder)
        try:
            before = tests(project, folder)
            mend(project, folder)
            after = tests(project, folder)
        except NoVerdict as error:
            sys.stdout.write(f"{project}: {error}\n")
            return False
    sys.stdout.write(f"{project}: {'green' if before else 'red'}, and {'green' if after else 'red'} with the patch\n")
    return after and not before


def main(words: list[str]) -> int:
    """Check one project, or all that are there."""
    if len(words) != 2 or words[0] not in ("--all", *PROJECTS):
        raise SystemExit(f"usage: python upstream/check.py PROJECT SOURCE; PROJECT: --all, {', '.join(PROJECTS)}")
    place = Path(words[1]).resolve()
    if words[0] != "--all":
        return int(not check(words[0], place))
    found = [project for project in PROJECTS if (place / project).is_dir()]
    verdicts = [check(project, place / project) for project in found]  # of all, also after a bad one
    return int(not verdicts or not all(verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
