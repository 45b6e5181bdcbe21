"""`relive batches`: the last batches that a learner got. It needs no package: runs break anywhere."""

from __future__ import annotations

import argparse
import inspect
import json as plain
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relive import KeptBatch, kept_batches
from relive.cli.terminal import columns

_FIELDS = ("field", "dtype", "shape", "least", "largest", "not finite", "in batches")


def batches(path: str, number: int | None = None, json: bool = False) -> int:
    """List the last batches that a learner got, from the file of `buffer.keep_batches`, also after a kill.

    Of each: when, the ages of its items, weights and TD errors; of all together: what each field holds, and the batches
    that have NaN or infinity. The exit status is 1 where there is any, and 0 otherwise.

    Example: relive batches runs/batches --number 1207

    Args:
        path: The file.
        number: Show this batch alone.
        json: Print all of it as JSON, field by field of each batch.
    """
    found = [kept for kept in kept_batches(path) if number in (None, kept.number)]
    facts = [_facts(kept) for kept in found]
    if json:
        sys.stdout.write(plain.dumps(facts, indent=1) + "\n")
    else:
        sys.stdout.write(_shown(path, found, facts) + "\n")
    return int(any(entry["not_finite"] for each in facts for entry in [*each["fields"].values(), each["td_error"]]))


def main(arguments: Sequence[str]) -> int:
    """Run `relive batches ARGUMENTS`."""
    text = inspect.cleandoc(str(batches.__doc__)).partition("Args:")[0]
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("relive batches", description=text, formatter_class=shown)
    parser.add_argument("path", metavar="PATH", help="the file of `buffer.keep_batches`")
    parser.add_argument("--number", type=int, help="show this batch alone")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    return batches(**vars(parser.parse_args(arguments)))


def _facts(kept: KeptBatch) -> dict[str, Any]:
    fields = {".".join(path): _field(array) for path, array in _leaves(kept)}
    ages = [] if kept.ages is None else np.quantile(kept.ages, [0, 0.5, 1]).tolist()
    facts = {"number": kept.number, "time": None if kept.torn else kept.time, "torn": kept.torn, "ages": ages}
    return {**facts, "fields": fields, "td_error": _field(np.empty(0) if kept.td_error is None else kept.td_error)}


def _leaves(nest: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, value in nest.items():
        found += _leaves(value, (*above, name)) if isinstance(value, Mapping) else [((*above, name), value)]
    return found


def _field(array: Any) -> dict[str, Any]:
    """Describe an array: extremes of what is finite, and how many numbers are not."""
    values = array if array.dtype.kind in "biu" else abs(array) if array.dtype.kind == "c" else array.astype(np.float64)
    finite = values[np.isfinite(values)]
    ends = [finite.min().item(), finite.max().item()] if finite.size else [None, None]
    nan = int(np.isnan(values).sum())
    shape, missing = list(array.shape), int(values.size - finite.size)
    return {"dtype": array.dtype.name, "shape": shape, "ends": ends, "not_finite": missing, "nan": nan}


def _shown(path: str, found: Sequence[KeptBatch], facts: Sequence[Mapping[str, Any]]) -> str:
    """Format all of it as text."""
    if not found:
        return f"{path}: no batch yet, or none of that number"
    rows = [("number", "ago", "items", "ages", "weights", "TD errors", "not finite")]
    for kept, each in zip(found, facts, strict=True):
        if kept.torn:
            rows.append((f"{kept.number:,}", "torn", "", "", "", "", ""))
            continue
        bad = [name for name, field in {**each["fields"], "TD errors": each["td_error"]}.items() if field["not_finite"]]
        ages = " / ".join(f"{age:,.0f}" for age in each["ages"])
        items = str(len(kept["ids"])) if "ids" in kept else "-"
        spans = (_span(each["fields"].get("weights")), _span(each["td_error"]))
        rows.append((f"{kept.number:,}", _ago(kept.time), items, ages or "-", *spans, ", ".join(bad) or "-"))
    together = [_FIELDS]
    for name in dict.fromkeys(name for each in facts for name in each["fields"]):
        of = {each["number"]: each["fields"][name] for each in facts if name in each["fields"]}
        ends: list[Any] = [end for field in of.values() for end in field["ends"] if end is not None]
        least, largest = (_number(end(ends)) if ends else "-" for end in (min, max))
        bad = [f"{number:,}" for number, field in of.items() if field["not_finite"]]
        missing = sum(field["not_finite"] for field in of.values())
        nan = sum(field["nan"] for field in of.values())
        count = f"{missing:,} ({nan:,} NaN)" if missing else "-"
        last = [*of.values()][-1]
        together.append((name, last["dtype"], f"{last['shape']}", least, largest, count, ", ".join(bad) or "-"))
    head = f"{path}: {len(found)} batches; ages in rows: least, median, largest"
    return "\n\n".join([head, columns(rows, ">>>>>>>"), columns(together, "<<<>>><")])


def _span(field: Mapping[str, Any] | None) -> str:
    ends: Any = [None] if field is None else field["ends"]
    return "-" if ends[0] is None else " to ".join(_number(end) for end in ends)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _ago(moment: float) -> str:
    seconds = max(time.time() - moment, 0.0) if math.isfinite(moment) else 0.0
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
