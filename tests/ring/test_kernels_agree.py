"""Two ways to the same result: native and NumPy kernels, the fast path and the general one, one call and many."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from programs import Call, assert_same_results, programs, run

from relive._base.nests import mapped
from relive._ring import kernels

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
# Where relive was installed without a compiler, a program must at least repeat itself.
FIRST = "native" if importlib.util.find_spec("relive._ring._native") else "numpy"


@given(programs())
def test_both_back_ends_agree(program: Any) -> None:
    """Same ids, same bytes, same weights, same refusals in the same words."""
    assert_same_results(run(FIRST, *program), run("numpy", *program))


@given(programs(spoiled=False))
@settings(max_examples=settings().max_examples // 2)
def test_the_fast_and_the_general_way_in_agree(program: Any) -> None:
    """Canonical arrays of all lanes may take a short cut; lists and named lanes cannot."""
    config, calls = program
    ours, theirs = run_here(config, calls), run_here(config, [by_the_general_way(config, call) for call in calls])
    assert_same_results(ours, theirs)


def run_here(config: Any, calls: list[Call]) -> list[Any]:
    return run(kernels.active().__name__.rpartition("_")[2].replace("kernels_", ""), config, calls)


def by_the_general_way(config: Any, call: Call) -> Call:
    name, arguments = call
    if name not in ("add", "extend"):
        return call
    lanes = arguments.get("env_ids", list(range(config.num_envs)))
    rest = {key: value for key, value in arguments.items() if key != "env_ids"}
    return name, {**mapped(lambda value: value.tolist(), rest), "env_ids": lanes}


@given(programs(spoiled=False))
@settings(max_examples=settings().max_examples // 2)
def test_steps_one_by_one_are_the_same_as_together(program: Any) -> None:
    """`extend` is `add` in a loop, whatever the streams do.

    Left out: given priorities (in one call all are known before the first step counts), and ranks (what comes in one
    call ranks lane by lane).
    """
    config, calls = replace(program[0], ranked=False), program[1]
    one_by_one: list[Call] = []
    together: list[Call] = []
    for name, arguments in calls:
        kept = {key: value for key, value in arguments.items() if key != "priority"}
        together.append((name, kept))
        if name == "extend":
            lanes = {"env_ids": kept.pop("env_ids")} if "env_ids" in kept else {}
            for t in range(len(kept["reward"][0])):
                one_by_one.append(("add", {**mapped(lambda value, t=t: value[:, t], kept), **lanes}))
            kept.update(lanes)
        else:
            one_by_one.append((name, kept))
    ours, theirs = run_here(config, together), run_here(config, one_by_one)
    assert_same_results([r for r in ours if not is_ids(r)], [r for r in theirs if not is_ids(r)])
    flat = [np.concatenate([[], *(np.sort(r.ravel()) for r in results if is_ids(r))]) for results in (ours, theirs)]
    np.testing.assert_array_equal(np.sort(flat[0]), np.sort(flat[1]))


def is_ids(result: Any) -> bool:
    return isinstance(result, np.ndarray)
