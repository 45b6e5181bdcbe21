"""Walks over nests: mappings and tuples of any depth."""

from __future__ import annotations

from typing import Any

import pytest

from relive._base.nests import leaves, located, mapped, nested, paths, zipped
from relive.batch import Batch

NEST = {"a": 1, "b": ({"c": 2}, 3), 4: {"d": 5}, "empty": {}}
# As a schema names it: tuples are mappings of their positions, and all names are texts.
NAMED = {"a": 1, "b": {"0": {"c": 2}, "1": 3}, "4": {"d": 5}}


def test_a_nest_comes_back_from_its_paths_as_a_schema_names_it() -> None:
    assert nested(paths(NEST)) == NAMED
    assert leaves(NEST) == leaves(NAMED) == [1, 2, 3, 5]
    assert list(paths(7, ("x",))) == [(("x",), 7)]


def test_leaves_are_changed_where_they_are() -> None:
    assert mapped(str, NEST) == {"a": "1", "b": ({"c": "2"}, "3"), 4: {"d": "5"}, "empty": {}}
    assert mapped(str, Batch({"a": {"b": 1}})) == {"a": {"b": "1"}}
    assert located(lambda leaf, at: (at, leaf), {"a": {"b": (1, 2)}}, "$") == {"a": {"b": ("$.a.b", (1, 2))}}


@pytest.mark.parametrize("other", [NEST, {**NAMED, "empty": {}, "more": 6}], ids=["alike", "as a schema names it"])
def test_nests_are_joined_side_by_side_in_the_form_of_the_first(other: Any) -> None:
    assert zipped(lambda *each: sum(each), NEST, other, NEST) == mapped(lambda leaf: 3 * leaf, NEST)


@pytest.mark.parametrize(("other", "error"), [({"a": 1}, KeyError), ({**NAMED, "b": (1,)}, (IndexError, TypeError))])
def test_an_entry_that_another_nest_lacks_is_an_error(other: Any, error: Any) -> None:
    with pytest.raises(error):
        zipped(lambda *each: each, NEST, other)
