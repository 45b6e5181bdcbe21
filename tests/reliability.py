"""Runs the tests behind each promise about failures, and writes the table in docs/reliability.md, row by row.

python tests/reliability.py               # as the normal run has them: minutes of one core
python tests/reliability.py --long        # with all that takes long: hours
python tests/reliability.py kill torn     # only promises whose text has one of these words; other rows stay
"""

from __future__ import annotations

import argparse
import os
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
HEAD = """\
| promise | cases | failures | seconds | run | a fault that turns them red |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Promise:
    """What is promised, which tests hold it to that, and a fault that turns these red."""

    text: str
    tests: tuple[str, ...]
    proof: str


FAULTS, PROCESSES, CHECKPOINTS = "tests/faults", "tests/processes", "tests/checkpoints"
PROMISES = [
    Promise(
        "A trajectory that was flushed survives a kill; a save is the old or the new one",
        (f"{FAULTS}/test_kill.py",),
        "`test_meta_a_save_that_is_acknowledged_too_early_is_found`",
    ),
    Promise(
        "What is durable survives a loss of power; no sync of a save can be left out",
        (f"{FAULTS}/test_power_loss.py", f"{FAULTS}/test_power_loss_of_saves.py"),
        "`test_every_sync_is_needed`",
    ),
    Promise(
        "Every flipped bit and every cut of a save is found",
        (f"{FAULTS}/test_damaged_saves.py",),
        "`test_meta_a_load_that_compares_nothing_is_found`",
    ),
    Promise(
        "Any call of the file system may fail: an error, and nothing acknowledged is lost",
        (f"{FAULTS}/test_failing_calls.py", f"{FAULTS}/test_failing_saves.py", f"{FAULTS}/test_failing_loads.py"),
        "`test_meta_a_failed_sync_that_is_passed_over_is_found`",
    ),
    Promise(
        "Whichever allocation of a call fails, the buffer goes on",
        (f"{FAULTS}/test_out_of_memory.py",),
        "by hand: `sample` moves the generator before anything can fail",
    ),
    Promise(
        "Ctrl-C at any line of any call leaves a buffer that goes on right",
        (f"{FAULTS}/test_interrupts.py", f"{FAULTS}/test_reentry.py"),
        "`test_meta_half_a_change_is_found`",
    ),
    Promise(
        "A loaded buffer draws what the saved one would have drawn, to the bit",
        (f"{CHECKPOINTS}/test_saving.py", "tests/golden/test_golden_saves.py"),
        "by hand: a save without its guard",
    ),
    Promise(
        "Salvage gives back what is sound, and only that",
        (f"{CHECKPOINTS}/test_salvage.py",),
        "by hand: a stream that does not end before a gap",
    ),
    Promise(
        "A hostile directory is refused by name, at once, and runs no code",
        ("tests/attacks",),
        "`test_good_directories_are_read`",
    ),
    Promise(
        "A refused call changes nothing",
        ("tests/error_text", "tests/buffer/test_odd_calls.py"),
        "`test_meta_a_refusal_that_has_changed_something_is_found`",
    ),
    Promise(
        "Both back ends agree to the bit; the native border refuses what is wrong",
        ("tests/ring/test_kernels_agree.py", "tests/ring/test_border.py"),
        "the table of legal calls is exact",
    ),
    Promise(
        "Any program of calls does what the model does",
        ("tests/buffer/test_state_machine.py",),
        "by hand: a dropped step whose stream is not cut before it",
    ),
    Promise(
        "No torn row is drawn from shared memory",
        (f"{PROCESSES}/test_torn_rows.py",),
        "`test_meta_without_the_check_rows_are_torn`; by hand: a look that comes too late",
    ),
    Promise(
        "A killed writer blocks nobody; nothing is left behind",
        (f"{PROCESSES}/test_shared.py", f"{PROCESSES}/test_shared_kills.py", f"{PROCESSES}/test_processes.py"),
        "by hand: a lane that nobody puts right",
    ),
    Promise(
        "Readers with other items see what a buffer of their own would",
        (f"{PROCESSES}/test_views.py",),
        "by hand: rows that were overwritten before they were copied",
    ),
    Promise(
        "Draws follow their law",
        ("tests/samplers/test_draws.py", "tests/samplers/test_ranked.py", "tests/items/test_hindsight.py"),
        "`test_meta_uniform_draws_of_the_positive_ones_are_found`",
    ),
    Promise(
        "Threads lose nothing and do not starve each other",
        ("tests/buffer/test_threads.py", f"{CHECKPOINTS}/test_add_during_save.py", "tests/flow"),
        "by hand: a lock that lets everybody in",
    ),
    Promise(
        "A child that is forked at any moment works or refuses, and never waits for a thread that it does not have",
        (f"{FAULTS}/test_forks.py",),
        "by hand: a child that keeps its parent's locks",
    ),
    Promise(
        "A process that ends while its threads are in a call is not aborted",
        (f"{FAULTS}/test_exits.py",),
        "by hand: an end that does not wait for native calls",
    ),
    Promise(
        "A call that waits ends with an error where its buffer is closed, or its creator has died",
        ("tests/flow/test_limiter_waits.py",),
        "by hand: a `close` that tells nobody",
    ),
    Promise(
        "A save upon a damaged one finds that, and is whole",
        (f"{FAULTS}/test_saves_upon_damage.py",),
        "by hand: a save that believes sizes only",
    ),
    Promise(
        "A load goes on as in RAM, in every storage: nothing is cut, ids are the same",
        (f"{CHECKPOINTS}/test_loads_go_on.py",),
        "by hand: a load that cuts every lane",
    ),
    Promise(
        "What is read beside writers is of one moment, without what was overwritten",
        (f"{PROCESSES}/test_reading_beside_writers.py",),
        "by hand: a read that looks once",
    ),
    Promise(
        "Steps reach their shards or are counted; a save of shards that is refused or fails replaces nothing",
        ("tests/ray/test_shard_writers.py", "tests/ray/test_shard_faults.py"),
        "by hand: a writer that ends without its last block",
    ),
    Promise(
        "A lost shard, node, raylet or head costs what was on it since its last save",
        ("tests/ray/test_shards_on_ray.py",),
        "by hand: a writer without an actor's shutdown",
    ),
    Promise(
        "A batch of an adapter is of one moment beside threads that add",
        ("tests/adapters/test_adapter_threads.py",),
        "by hand: calls that do not take their turn",
    ),
]


def run(promise: Promise, long: bool) -> str:
    """One row of the table."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | (
        {"RELIVE_LONG": "1", "RELIVE_EXAMPLES": "5000"} if long else {}
    )
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = ["-q", "-o", "junit_family=xunit1", f"--junitxml={report.name}"]
        command = [sys.executable, "-m", "pytest", *options, *promise.tests]
        start = sum(os.times()[2:4])
        done = subprocess.run(command, cwd=ROOT, env=environment)
        seconds = sum(os.times()[2:4]) - start
        suites = [*ElementTree.parse(report.name).getroot().iter("testsuite")] if os.path.getsize(report.name) else []
    cases = sum(counted(test) for suite in suites for test in suite.iter("testcase"))
    failed = sum(int(suite.get(name, 0)) for suite in suites for name in ("failures", "errors"))
    failures = failed or int(done.returncode != 0)
    date = f"{time.strftime('%Y-%m-%d')}, {'long' if long else 'normal'}"
    return f"| {promise.text} | {cases:,} | {failures} | {seconds:.0f} | {date} | {promise.proof} |"


def counted(test: ElementTree.Element) -> int:
    """How many cases a test has gone through, if it says so."""
    if test.find("skipped") is not None:
        return 0
    return sum(int(each.get("value", 0)) for each in test.iter("property") if each.get("name") == "cases") or 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--long", action="store_true")
    given = parser.parse_args()
    failed = False
    for promise in PROMISES:
        if not given.words or any(word in promise.text for word in given.words):
            row = run(promise, given.long)
            print(row)
            failed |= row.split("|")[3].strip() != "0"
            written(promise, row)
    return int(failed)


def written(promise: Promise, row: str) -> None:
    """Put a row into the page; those of other promises stay."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    rows |= {promise.text: row}
    found = [rows[each.text] for each in PROMISES if each.text in rows]
    PAGE.write_text(f"{before}{BEGIN}{HEAD}{chr(10).join(found)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
