"""Recorded sum-tree histories and the worked examples of two blog posts, through the public `SumTree`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from recorded import DATA, cases, load

import relive

FACTS = json.loads((DATA / "blog_facts.json").read_text())


@pytest.mark.parametrize("name", cases("sumtree"))
def test_recorded_history(name):
    """`advance` and `update` write leaves, `sample` descends.

    Which leaves an `advance` switches on or off is the recorded system's own rule (a zone around the cursor); the
    tree gets the outcome. Updates are replayed as they were called, duplicates included.
    """
    params, arrays = load(name)
    lanes = params["B"]
    tree = relive.SumTree(params["ring_T"] * lanes)
    leaves = np.zeros(params["ring_T"] * lanes)
    drawn = {}
    for i, op in enumerate(params["ops"]):
        if op["op"] == "sample":
            row = op["row"]
            found = tree.find(arrays["u"][row][: op["n"]] * arrays["total"][i])
            drawn[row] = arrays["T_idxs"][row] * lanes + arrays["B_idxs"][row]
            np.testing.assert_array_equal(found, drawn[row][: op["n"]])
            np.testing.assert_allclose(leaves[found], arrays["sampled_priority"][row][: op["n"]], rtol=1e-6)
        elif op["op"] == "update":
            tree.set(drawn[op["of_sample"]], arrays["update_priorities"][op["row"]])
        else:
            changed = np.flatnonzero(arrays["leaf"][i].ravel() != leaves)
            tree.set(changed, arrays["leaf"][i].ravel()[changed])
        leaves = arrays["leaf"][i].ravel().copy()
        assert_tree_holds(tree, leaves)
        np.testing.assert_allclose(tree.total, arrays["total"][i], rtol=1e-6)


def assert_tree_holds(tree, leaves):
    """Check that every positive leaf is found at the middle of its interval, and total and minimum."""
    np.testing.assert_allclose(tree.total, leaves.sum(), rtol=1e-12)
    positive = np.flatnonzero(leaves > 0)
    if len(positive):
        middles = (np.cumsum(leaves) - leaves / 2)[positive]
        np.testing.assert_array_equal(tree.find(middles), positive)
        assert tree.min == leaves[positive].min()


@pytest.mark.parametrize("example", FACTS["sum_tree"], ids=lambda example: f"{example['capacity']}-{example['add']}")
def test_worked_examples_of_the_blogs(example):
    capacity = example["capacity"]
    tree = relive.SumTree(capacity)
    for position, value in enumerate(example["add"]):
        tree.set([position % capacity], [value])
    if "update" in example:
        tree.set([example["update"][0]], [example["update"][1]])
    assert tree.total == example["total"]
    for prefix, leaf in example.get("get", {}).items():
        assert tree.find([float(prefix)])[0] == leaf
    if "last_index" in example:
        assert (len(example["add"]) - 1) % capacity == example["last_index"]
        assert tree.find([0.5])[0] == example["last_index"]


def test_defaults_of_the_blogs_are_the_defaults_here():
    """Check for the same numbers under the same names, except for the capacity, on which the two disagree."""
    facts, sampler, item = FACTS["defaults"], relive.Prioritized(), relive.Transitions(n_step=3)
    assert (sampler.alpha, sampler.beta, sampler.eps) == (facts["alpha"], facts["beta_start"], facts["epsilon"])
    assert (item.n_step, item.gamma) == (facts["n_steps"], facts["gamma"])
