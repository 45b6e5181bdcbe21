"""Every call of the extension refuses wrong dtypes, shapes, strides and values with an exception, and harms nothing.

The calls are made in processes of their own, so that one that crashes is reported as this test's failure.
"""

from __future__ import annotations

import gc
import inspect
import json
import weakref
from collections import Counter
from fnmatch import fnmatch
from functools import lru_cache

import numpy as np
import pytest
from back_ends import HAS_NATIVE, run_python
from depth import LONG

pytestmark = pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension")
LEAST = 20 if LONG else 4

LENGTHS = "one fewer, one more, one fewer across, one more across, empty"
SAME = "other byte order, unaligned"
EXTREMES = f"{2**62}, {2**63 - 1}, {-(2**63)}"
BYTES = f"other kind, structured, {SAME}"
COUNTERS = ", ".join(["4=9", "13=9", *(f"{c}={value}" for c in (5, 8, 9, 10, 11, 12) for value in (9, 1000))])
FORMS = "a list, a tuple, a buffer, other size, other byte order, unaligned, strided, backwards"
CALLED = "notify|redraw|fallback|outcomes"
LEFT_OUT = "given|limits|from_|until|next_values|priority|joint|targets|firsts|reward"
LEGAL_OF_BOTH = [
    ("any numbers", "[!t]*", FORMS),
    ("zeros and ones", "t*ed", f"{FORMS}, broadcast"),
    ("the same for all lanes", "[!et]*", "broadcast"),
    ("integers become floats, signed ones unsigned", "[!t]*", "other kind"),
    ("need not be there", "next_obs|env_ids|priority", "None, missing"),
    ("one for all steps", "priority", "a number, 0-d, a scalar"),
]
# Spoilt arguments that a call takes all the same: why, call, argument, spoilers.
LEGAL = [
    ("any number of values", "power|mass|weights", "x|td_error|values", LENGTHS),
    ("at least one value", "smallest", "values", LENGTHS.removesuffix(", empty")),
    ("rows of anything", "checksums", "rows", f"other size, complex, of text, of times, one axis more, {BYTES}"),
    ("rows of anything", "checksums", "rows", f"one axis less, {LENGTHS}"),
    ("bytes are copied, whatever they mean", "copy_steps", "*", BYTES),
    ("False for other arrays", "keep_arrays", "[ap]*s", "a list"),
    ("any room for the facts; single bytes", "keep_arrays", "head", f"{SAME}, {LENGTHS.removesuffix(', empty')}"),
    ("single bytes", "put_rows", "[ov]*", "first: other byte order, first: unaligned"),
    ("a longer array", "put_rows", "outs", "first: one more"),
    ("bytes are copied, whatever they mean", "[cs]*_ranges", "[cov]*", "first: other kind, first: structured"),
    ("bytes are copied", "[cs]*_ranges", "[cov]*", "first: other byte order, first: unaligned"),
    ("bytes are read, whatever they mean", "read_rows", "out", f"other size, complex, of text, of times, {BYTES}"),
    ("bytes are read; a longer array", "read_fields", "outs", "first: other kind, first: other byte order"),
    ("bytes are read", "read_fields", "outs", "first: structured, first: unaligned, first: one fewer, first: one more"),
    ("a field more", "read_fields", "files", "one more across"),
    ("rows that overlap; other bytes of what is kept", "read_fields", "fields", "1=4, 3=4"),
    ("any number of samples", "sort_rows", "samples", LENGTHS),
    ("any number of single bytes", "read_spans", "out", "other byte order, unaligned, one more, one more across"),
    ("rows of any size", "read_rows", "out", f"one axis less, {LENGTHS.removesuffix(', empty')}"),
    ("another number of fields", "Ring.__init__", "columns", "one fewer, one more"),
    ("fields of other types", "Ring.__init__", "columns", "first: array: other size, first: array: other kind"),
    ("fields of other types", "Ring.__init__", "columns", "first: array: complex, first: array: of t*"),
    ("bytes are copied", "Ring.__init__", "columns", "first: array: structured, first: array: unaligned"),
    ("as many bytes", "Ring.__init__", "columns", "first: shape=(2, 4, 1)"),
    ("single bytes", "Ring.__init__|Ring.write", "marks|t*ated", SAME),
    ("counters that are only reported", "Ring.__init__", "counters", COUNTERS),
    ("no second start in this ring's life", "Ring.__init__", "window", f"starts=0, starts=9, starts={2**62}"),
    ("None leaves it out", "Ring.*|Queue.__init__|Gather.around|Gather.transitions|[su]*ing", LEFT_OUT, "None"),
    ("nothing is counted; one group", "Ring.__init__", "touched", "None, Fortran order"),
    ("a class can be called", "adding", "[!rls]*", "a class"),
    ("a class can be called; None, no priorities", "adding", "refresh", "a class, None"),
    ("no limiter; one number", "adding", "room", "None, strided, backwards"),
    ("any ids, issued or not", "listed", "ids", f"{LENGTHS}, -1, 24, {EXTREMES}"),
    ("no items from there on; one number", "listed", "at", f"strided, backwards, -1, 4, 7, 8, {2**62}"),
    *((why, call, *rest) for call in ("add", "extend") for why, *rest in LEGAL_OF_BOTH),
    ("more than one axis", "add|extend", "*obs|state", "Fortran order"),
    ("more than one axis", "extend", "action|reward|priority|t*ed", "Fortran order"),
    ("one for all lanes", "add", "priority", "one axis less"),
    ("lanes first, where nothing is said", "extend", "time_major", "missing"),
    ("no lane is busy, any may be written; single bytes", "Ring.__init__|Ring.allow", "busy|lanes", f"None, {SAME}"),
    ("any number of ids, issued or not", "Ring.overtaken", "ids", f"{LENGTHS}, 27, {2**62}, {2**63 - 1}"),
    ("fewer lanes", "Ring.cut", "lanes", "one fewer, one fewer across, empty"),
    ("any ids, issued or not; any steps", "Ring.locate|Ring.standing|Ring.follow", "ids|steps", f"-1, 27, {EXTREMES}"),
    ("any number of ids", "Ring.locate|Ring.standing", "ids", LENGTHS),
    ("rows of any shape", "Ring.stacks", "newest", f"{LENGTHS}, one axis more, 0-d"),
    ("one offset or more", "Ring.around", "offsets", LENGTHS.removesuffix(", empty")),
    ("one offset or more", "Gather.around", "offsets", "first: one fewer*, first: one more*"),
    ("any number of slots", "Ring.*|Queue.*|Recency.*|Expansion.items", "slots", LENGTHS),
    ("any lists; None says that they are not joined", "joined", "parts", "empty, one fewer, one more, of *, first: *"),
    ("windows of one to R steps", "Ring.windows|Gather.expand", "discounts", LENGTHS.removesuffix(", empty")),
    ("float32 or float64, a field of a record", "Ring.fold", "column", "other size, strided"),
    ("more powers than are needed", "Ring.fold", "gammas", "one more, one more across"),
    ("float32 or float64, longer than needed", "Ring.fold_sequences", "rewards", "other size, one more across"),
    ("shorter sequences", "Ring.fold_sequences", "steps", "one fewer across"),
    ("shorter windows", "Ring.fold_sequences", "gammas", "one fewer, one fewer across"),
    ("rows of anything", "Gather.__init__", "columns", "first: other size, first: other kind, first: complex"),
    ("rows of anything", "Gather.__init__", "columns", "first: of times, first: unaligned, first: of text"),
    ("rows of anything", "Gather.__init__", "columns", "first: structured, first: one axis *, first: empty"),
    ("rows of anything", "Gather.__init__", "columns", "first: one fewer*, first: one more*"),
    ("a list that no column takes", "Gather.take*", "rows", "one more"),
    ("bytes are copied", "Gather.take", "outs", "first: unaligned"),
    ("bytes are copied; None makes new arrays", "Gather.unroll|Gather.expand", "outs", "None, first: unaligned"),
    ("minima are only reported", "Tree.__init__", "mins", "nan, inf, -1.0"),
    ("any number of leaves", "Tree.get|Tree.fill*", "indices|removed|added", LENGTHS),
    ("any number of draws", "Tree.find|*.draw*", "prefix|u", LENGTHS),
    ("any number of draws", "*.sample", "u", LENGTHS.removesuffix(", empty")),
    ("float32 as well", "Tree.try_update", "td_error", "other size"),
    ("all are kept; single bytes", "Tree.update", "keep", f"None, {SAME}"),
    ("a class has its defaults", "blending|*.chooser", "settings", "a class"),
    ("a class can be called", "Ring.__init__|sampling|updating", "notify|redraw|fallback", "a class"),
    ("a class can be called", "Gather.goals", "outcomes|reward", "a class"),
    ("plans in its place", "Gather.goals", "reward", "None"),
    ("anything that has a generator", "sampling", "tally", "text, a list, two, a mapping, complex, an object"),
    ("anything that has a generator", "sampling", "tally", "other, a class"),
    ("any number of stacks", "Gather.transitions", "stacks", "empty, one fewer, one more"),
    ("any number of chunks, or none", "Gather.transitions", "chunks", "None, empty, one fewer, one more"),
    ("bytes are copied", "Ring.chunks", "column", "other size, other kind, complex, of times, unaligned, strided"),
    ("as many steps as an item has", "Ring.chunks", "steps", "4"),
    ("float32 or float64, a field of a record", "Gather.transitions", "reward", "other size, strided"),
    ("any number of states", "Gather.sequences", "states", "empty, one fewer, one more"),
    ("bytes are copied", "Gather.sequences", "states", "array: other size, array: other kind, array: complex"),
    ("bytes are copied", "Gather.sequences", "states", "array: of text, array: of times, array: structured"),
    ("bytes are copied", "Gather.sequences", "states", "array: unaligned, array: one * across"),
    ("looked at when changes are taken in", "*.chooser", "seen", f"-1, {EXTREMES}"),
]


NAMES = [
    (row, calls, arguments, name.replace(";", ","))
    for row, (_, calls, arguments, names) in enumerate(LEGAL)
    for name in names.replace("(2, 4, 1)", "(2; 4; 1)").split(", ")
]


@lru_cache
def allowed(call: str, argument: str) -> list[tuple[int, str]]:
    """The entries of the table for an argument of a call."""
    return [(row, name) for row, *patterns, name in NAMES if all(map(matches, (call, argument), patterns))]


def matches(name: str, patterns: str) -> bool:
    return any(fnmatch(name, each) for each in patterns.split("|"))


def test_wrong_arguments_are_refused() -> None:
    """Refused, with nothing changed; or listed in the table, and taken."""
    done = run_python("import border_calls; border_calls.run()")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"died in {lines[-1]}\n{done.stderr[-3000:]}"
    decoder, wrong = json.JSONDecoder(), Counter[str]()
    used: set[tuple[int, str]] = set()
    surprises = []
    for line in lines:
        (call, kind, argument, spoiler), end = decoder.raw_decode(line)
        result = json.loads(line[end:])
        wrong[call] += kind != "right"
        legal = [(row, name) for row, name in allowed(call, argument) if argument and fnmatch(spoiler or kind, name)]
        taken = result == "returned" or result.endswith(" later")
        used |= set(legal) if taken else set()
        declined = result == "declined"  # by `add`, `extend` and `try_update`: Python has the error
        refused = declined or (result.endswith("Error") and " " not in result)
        if not taken if kind == "right" or legal else not refused:
            surprises.append(f"{call}({kind} {argument}: {spoiler}): {result}")
    assert not surprises, "\n".join(surprises)
    assert min(wrong.values()) >= LEAST, wrong
    listed = {(row, name) for row, _, _, name in NAMES}
    assert listed == used, f"nothing takes these any more: {listed - used}"


def test_no_function_is_forgotten() -> None:
    import border_calls

    import relive._ring._native as native

    listed = {*border_calls.makers()}
    there = {name for name, value in vars(native).items() if callable(value) and not inspect.isclass(value)}
    for kind in (value for value in vars(native).values() if inspect.isclass(value)):
        made = hasattr(vars(kind)["__init__"], "__nb_signature__")  # else by other calls alone
        names = (name for name in vars(kind) if not name.startswith("__") or (made and name == "__init__"))
        there |= {f"{kind.__name__}.{name}" for name in names}
    assert listed - {"add", "extend"} == there


def test_what_a_kernel_works_on_lives_as_long_as_the_kernel() -> None:
    """Whatever becomes of the lists that it was made from, and of the ring that a queue follows."""
    from border_sampler_calls import queue_arguments
    from border_tools import native, ring_arguments

    from relive.sum_tree import allocate

    arguments = ring_arguments()
    arrays = [weakref.ref(layout.array) for layout in arguments["columns"]]
    arrays += [weakref.ref(arguments[name]) for name in ("marks", "counters", "clock", "given", "touched")]
    kernels = [native.Ring(**arguments)]
    kernels.append(native.adding(kernels[0], native.Lock(), print, list, print, several=False, room=None))
    columns = [np.zeros(3), np.zeros(4)]
    arrays += [weakref.ref(array) for array in columns]
    kernels.append(native.Gather(columns, [0, 0], False))
    columns.clear()
    sums, mins, state = allocate(100)
    arrays += [weakref.ref(array) for array in (*sums, *mins, state)]
    kernels.append(native.Tree(sums, mins, state))
    sums.clear(), mins.clear()
    queue = queue_arguments()
    arrays += [weakref.ref(array) for name, array in queue.items() if name != "ring"]
    kernels.append(native.Queue(**queue))
    arguments["columns"].clear()
    del arguments, state, queue
    gc.collect()
    assert all(array() is not None for array in arrays)
    kernels[-1].refresh()
    del kernels
    assert not any(array() is not None for array in arrays)


def test_garbage_in_the_arrays_is_refused_or_does_no_harm() -> None:
    done = run_python("import border_calls; border_calls.fill_with_garbage(150)")
    assert done.returncode == 0, done.stderr[-3000:]
    found = Counter(json.loads(line) for line in done.stdout.splitlines())
    assert set(found) == {"used", "refused"}
    assert min(found.values()) > 30
