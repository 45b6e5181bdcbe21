"""Runs the tests behind each promise about failures, and writes the table in docs/reliability.md.

python tests/reliability.py               # as the normal run has them: some minutes
python tests/reliability.py --long        # with all that takes long: hours of one core
python tests/reliability.py kill torn     # only promises whose text has one of these words; nothing is written
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


@dataclass(frozen=True)
class Promise:
    """What is promised, which tests hold it to that, and a fault that turns these red."""

    text: str
    tests: tuple[str, ...]
    proof: str


FAULTS, CONTRACT, PROPERTY = "tests/faults", "tests/contract", "tests/property"
PROMISES = [
    Promise(
        "A trajectory that was flushed survives a kill; a save is the old or the new one",
        (f"{FAULTS}/test_kill.py",),
        "-",
    ),
    Promise(
        "What is durable survives a loss of power; no sync can be left out",
        (f"{FAULTS}/test_power_loss.py", f"{FAULTS}/test_power_loss_of_saves.py"),
        "`test_every_sync_is_needed`",
    ),
    Promise(
        "Every flipped bit and every cut of a save is found",
        (f"{FAULTS}/test_damaged_saves.py",),
        "-",
    ),
    Promise(
        "Any call of the file system may fail: an error, and nothing acknowledged is lost",
        (f"{FAULTS}/test_failing_calls.py", f"{FAULTS}/test_failing_saves.py", f"{FAULTS}/test_failing_loads.py"),
        "-",
    ),
    Promise(
        "Ctrl-C at any line of any call leaves a buffer that goes on right",
        (f"{FAULTS}/test_interrupts.py", f"{FAULTS}/test_reentry.py"),
        "`test_meta_half_a_change_is_found`",
    ),
    Promise(
        "A loaded buffer draws what the saved one would have drawn, to the bit",
        (f"{PROPERTY}/test_saving.py", "tests/golden/test_golden_saves.py"),
        "by hand: a save without its guard",
    ),
    Promise("Salvage gives back what is sound, and only that", (f"{PROPERTY}/test_salvage.py",), "-"),
    Promise(
        "A hostile directory is refused by name, at once, and runs no code",
        ("tests/attacks",),
        "`test_good_directories_are_read`",
    ),
    Promise(
        "A refused call changes nothing",
        ("tests/error_text", f"{CONTRACT}/test_odd_calls.py"),
        "-",
    ),
    Promise(
        "Both back ends agree to the bit; the native border refuses what is wrong",
        (f"{PROPERTY}/test_kernels_agree.py", "tests/unit/test_border.py"),
        "the table of legal calls is exact",
    ),
    Promise("Any program of calls does what the model does", (f"{PROPERTY}/test_state_machine.py",), "-"),
    Promise(
        "No torn row is drawn from shared memory",
        (f"{CONTRACT}/test_torn_rows.py",),
        "`test_meta_without_the_check_rows_are_torn`; by hand: a look that comes too late",
    ),
    Promise(
        "A killed writer blocks nobody; nothing is left behind",
        (f"{CONTRACT}/test_shared.py", f"{CONTRACT}/test_processes.py"),
        "-",
    ),
    Promise(
        "Readers with other items see what a buffer of their own would",
        (f"{CONTRACT}/test_views.py",),
        "-",
    ),
    Promise("Draws follow their law", ("tests/statistical",), "-"),
    Promise("Threads lose nothing and do not starve each other", ("tests/threads",), "-"),
]


def run(promise: Promise, long: bool) -> str:
    """One row of the table."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"RELIVE_EXAMPLES": "5000"} if long else {})
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", f"--junitxml={report.name}", *promise.tests]
        start = time.monotonic()
        done = subprocess.run([*command, *(["-m", "not bench"] if long else [])], cwd=ROOT, env=environment)
        seconds = time.monotonic() - start
        suites = ElementTree.parse(report.name).getroot().iter("testsuite") if os.path.getsize(report.name) else []
        counts = [{name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors")} for suite in suites]
    cases = sum(count["tests"] for count in counts)
    failures = sum(count["failures"] + count["errors"] for count in counts) or int(done.returncode != 0)
    return f"| {promise.text} | {cases} | {failures} | {seconds:.0f} | {promise.proof} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--long", action="store_true")
    given = parser.parse_args()
    chosen = [each for each in PROMISES if not given.words or any(word in each.text for word in given.words)]
    rows = [run(promise, given.long) for promise in chosen]
    mode = "long" if given.long else "normal"
    head = f"{time.strftime('%Y-%m-%d')}, {mode} mode, {os.cpu_count()} cores, Python {platform.python_version()}:\n\n"
    head += "| promise | cases | failures | seconds | a fault that turns them red |\n|---|---|---|---|---|\n"
    table = head + "\n".join(rows) + "\n"
    print(table)
    if not given.words:
        page = PAGE.read_text(encoding="utf-8")
        kept = re.sub(f"{BEGIN}.*?{END}", lambda _: BEGIN + table + END, page, flags=re.DOTALL)
        PAGE.write_text(kept, encoding="utf-8")
    return int(any(row.split("|")[3].strip() != "0" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
