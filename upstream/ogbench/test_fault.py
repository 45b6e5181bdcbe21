"""A full ring counts its last slot."""

from types import SimpleNamespace

import numpy as np
from source import names_of


class Frozen(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self._dict = dict(self)


def tree_map(change, tree, *others):
    return {name: change(value, *(other[name] for other in others)) for name, value in tree.items()}


jax = SimpleNamespace(tree_util=SimpleNamespace(tree_map=tree_map, tree_leaves=lambda tree: list(tree.values())))
names = ("get_size", "Dataset", "ReplayBuffer")
ReplayBuffer = names_of("impls/utils/datasets.py", *names, np=np, jax=jax, FrozenDict=Frozen).ReplayBuffer


def test_every_slot_of_a_full_ring_is_drawn():
    buffer = ReplayBuffer.create({"observations": np.zeros(1)}, 4)
    for step in range(10):
        buffer.add_transition({"observations": np.array([step])})
        assert buffer.size == min(step + 1, 4)
    assert {int(obs) for obs in buffer.sample(200)["observations"][:, 0]} == {6, 7, 8, 9}
