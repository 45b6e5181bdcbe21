"""Runs the tests behind each promise about failures, and writes the tables of guarantees.md and measurements.md.

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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
COLUMNS = {
    "guarantees.md": ("promise", "about", "cases", "failures", "run"),
    "measurements.md": ("promise", "seconds", "a fault that turns the tests red"),
}
Row = dict[str, str]


@dataclass(frozen=True)
class Promise:
    """A promise, what it is about, the tests of it, and a fault that turns these red."""

    about: str
    text: str
    tests: tuple[str, ...]
    proof: str


FAULTS, PROCESSES, CHECKPOINTS = "tests/faults", "tests/processes", "tests/checkpoints"
PROMISES = [
    Promise(
        "call",
        "A refused call changes nothing",
        ("tests/error_text", "tests/buffer/test_odd_calls.py"),
        "`test_meta_a_refusal_that_has_changed_something_is_found`",
    ),
    Promise(
        "call",
        "Ctrl-C at any line of any call leaves a buffer that goes on right",
        (f"{FAULTS}/test_interrupts.py", f"{FAULTS}/test_reentry.py"),
        "`test_meta_half_a_change_is_found`",
    ),
    Promise(
        "call",
        "A failed allocation in any call leaves a buffer that goes on right",
        (f"{FAULTS}/test_out_of_memory.py",),
        "by hand: `sample` moves the generator before anything can fail",
    ),
    Promise(
        "call",
        "Any program of calls gives the results of a simple model",
        ("tests/buffer/test_state_machine.py",),
        "by hand: a dropped step whose stream is not cut before it",
    ),
    Promise(
        "call",
        "C++ and NumPy kernels agree to the bit and refuse the same mistakes",
        ("tests/ring/test_kernels_agree.py", "tests/ring/test_border.py"),
        "the table of legal calls is exact",
    ),
    Promise(
        "draw",
        "Draws follow their law",
        ("tests/samplers/test_draws.py", "tests/items/test_hindsight.py"),
        "`test_meta_uniform_draws_of_the_positive_ones_are_found`",
    ),
    Promise(
        "batch",
        "No array of a batch changes with another, and copies say that they are",
        ("tests/items/test_batches_apart.py", "tests/adapters/test_copies.py"),
        "by hand: `obs` and `next_obs` of sequences as writable views of one array",
    ),
    Promise(
        "batch",
        "Sequences have a step to learn from, an episode's first ones among them",
        ("tests/items/test_burn_in.py",),
        "by hand: a burn-in that is never shorter",
    ),
    Promise(
        "batch",
        "Mixtures, new goals and discounts of steps are those of a simple model",
        ("tests/buffer/test_mixtures_of_many.py", "tests/items/test_discounts.py", "tests/items/test_hindsight.py"),
        "by hand: a window that does not end where the new goal is reached",
    ),
    Promise(
        "batch",
        "After a kill all kept batches but the one being copied are whole, and that one is known as torn",
        (f"{FAULTS}/test_kill_of_kept_batches.py",),
        "by hand: a batch whose second number is written with its first",
    ),
    Promise(
        "batch",
        "Steps that a recorder holds are those that it would have stored",
        ("tests/gymnasium/test_holding.py",),
        "by hand: a discarded episode whose next step joins the one before it",
    ),
    Promise(
        "data",
        "A data set that is taken has the targets of its file",
        ("tests/adapters/test_data_files.py", "tests/lerobot/test_lerobot_programs.py"),
        "by hand: `dones` that nothing takes",
    ),
    Promise(
        "thread",
        "Threads lose no step and do not starve each other",
        ("tests/buffer/test_threads.py", f"{CHECKPOINTS}/test_add_during_save.py", "tests/flow"),
        "by hand: a lock that several threads hold",
    ),
    Promise(
        "thread",
        "A batch of an adapter shows one moment beside threads that add",
        ("tests/adapters/test_adapter_threads.py",),
        "by hand: calls without the lock",
    ),
    Promise(
        "thread",
        "A waiting call ends with an error when its buffer is closed or its creator has died",
        ("tests/flow/test_limiter_waits.py",),
        "by hand: a `close` that ends no wait",
    ),
    Promise(
        "save",
        "A load goes on as in RAM, in every storage: the same ids, no cuts",
        (f"{CHECKPOINTS}/test_loads_go_on.py",),
        "by hand: a load that cuts every lane",
    ),
    Promise(
        "save",
        "A loaded buffer draws the saved one's next batches, to the bit",
        (f"{CHECKPOINTS}/test_saving.py", "tests/golden/test_golden_saves.py"),
        "by hand: a save without its guard",
    ),
    Promise(
        "save",
        "Every end of a program saves what an autosaved buffer has, in its own directory",
        (f"{CHECKPOINTS}/test_ends_of_autosave.py",),
        "by hand: an autosave that holds its buffer weakly",
    ),
    Promise(
        "save",
        "Saves complete beside writers at full speed, each of one instant",
        (f"{CHECKPOINTS}/test_saves_beside_writers.py",),
        "by hand: writers that do not wait",
    ),
    Promise(
        "save",
        "`verify` says what `load` refuses, and calls nothing damaged that is replaced meanwhile",
        (
            f"{CHECKPOINTS}/test_hostile_blocks.py",
            f"{CHECKPOINTS}/test_looks_beside_saves.py",
            "tests/attacks/test_saves_verified.py",
        ),
        "by hand: a compressed block whose frame is not unpacked",
    ),
    Promise(
        "save",
        "Trajectories are drawn, loaded and examined beside their removal",
        ("tests/trajectories/test_beside_removals.py",),
        "by hand: an index that is read once",
    ),
    Promise(
        "save",
        "A kill leaves the old save or the new one, and every flushed trajectory",
        (f"{FAULTS}/test_kill.py",),
        "`test_meta_a_save_that_is_acknowledged_too_early_is_found`",
    ),
    Promise(
        "save",
        "A loss of power leaves all durable data; every sync of a save is needed",
        (f"{FAULTS}/test_power_loss.py", f"{FAULTS}/test_power_loss_of_saves.py"),
        "`test_every_sync_is_needed`",
    ),
    Promise(
        "save",
        "A failing call of the file system is an error; acknowledged data stay",
        (f"{FAULTS}/test_failing_calls.py", f"{FAULTS}/test_failing_saves.py", f"{FAULTS}/test_failing_loads.py"),
        "`test_meta_a_failed_sync_that_is_passed_over_is_found`",
    ),
    Promise(
        "save",
        "Every flipped bit and every cut of a save is found",
        (f"{FAULTS}/test_damaged_saves.py",),
        "`test_meta_a_load_that_compares_nothing_is_found`",
    ),
    Promise(
        "save",
        "A save upon a damaged one finds the damage and is whole",
        (f"{FAULTS}/test_saves_upon_damage.py",),
        "by hand: a save that compares sizes only",
    ),
    Promise(
        "save",
        "Salvage gives back all sound steps, and only those",
        (f"{CHECKPOINTS}/test_salvage.py",),
        "by hand: a stream that does not end before a gap",
    ),
    Promise(
        "save",
        "A hostile directory is refused by name, at once, and runs no code",
        ("tests/attacks",),
        "`test_good_directories_are_read`",
    ),
    Promise(
        "process",
        "No torn row is drawn from shared memory",
        (f"{PROCESSES}/test_torn_rows.py",),
        "`test_meta_without_the_check_rows_are_torn`; by hand: a check that comes too late",
    ),
    Promise(
        "process",
        "A read beside writers shows one moment, without overwritten steps",
        (f"{PROCESSES}/test_reading_beside_writers.py",),
        "by hand: a read that checks once",
    ),
    Promise(
        "process",
        "A reader with another item sees the items of a buffer of its own",
        (f"{PROCESSES}/test_views.py",),
        "by hand: rows that were overwritten before they were copied",
    ),
    Promise(
        "process",
        "A killed writer blocks no other process and leaves nothing behind",
        (f"{PROCESSES}/test_shared.py", f"{PROCESSES}/test_shared_kills.py", f"{PROCESSES}/test_processes.py"),
        "by hand: a lane that is not repaired",
    ),
    Promise(
        "process",
        "A child that is forked at any moment works or refuses, and never hangs",
        (f"{FAULTS}/test_forks.py",),
        "by hand: a child that keeps its parent's locks",
    ),
    Promise(
        "process",
        "A process that ends while its threads are in a call is not aborted",
        (f"{FAULTS}/test_exits.py",),
        "by hand: an end that does not wait for native calls",
    ),
    Promise(
        "Ray",
        "Steps reach their shards or are counted; a failed save of shards replaces nothing",
        ("tests/ray/test_shard_writers.py", "tests/ray/test_shard_faults.py"),
        "by hand: a writer that ends without its last block",
    ),
    Promise(
        "Ray",
        "A lost shard, node, raylet or head costs its steps since the last save",
        ("tests/ray/test_shards_on_ray.py",),
        "by hand: a writer without an actor's shutdown",
    ),
]


def run(promise: Promise, long: bool) -> Row:
    """Run a promise's tests; return the cells of its rows, by column."""
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
    return {
        "promise": promise.text,
        "about": promise.about,
        "cases": f"{cases:,}",
        "failures": str(failures),
        "seconds": f"{seconds:.0f}",
        "run": date,
        "a fault that turns the tests red": promise.proof,
    }


def counted(test: ElementTree.Element) -> int:
    """Count the cases of a test, as far as it records them."""
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
            print(line(row, row))
            failed |= row["failures"] != "0"
            for page in COLUMNS:
                written(page, row)
    return int(failed)


def written(name: str, row: Row) -> None:
    """Put a row into a page; those of other promises stay."""
    page, columns = ROOT / "docs" / name, COLUMNS[name]
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    table, after = rest.split(END)
    rows = {each.split("|")[1].strip(): each for each in table.splitlines()[2:]} | {row["promise"]: line(row, columns)}
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    found = head + [rows[each.text] for each in PROMISES if each.text in rows]
    page.write_text(before + BEGIN + "\n".join(found) + "\n" + END + after, encoding="utf-8")


def line(row: Row, columns: Iterable[str]) -> str:
    return "| " + " | ".join(row[name] for name in columns) + " |"


if __name__ == "__main__":
    sys.exit(main())
