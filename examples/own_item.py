"""An item of one's own: the next k actions of a step, for policies that act in chunks (Zhao et al. 2023).

`relive.Transitions(n_step=k, chunk=True)` is this item, ready made; here it is what an item of your own looks like.

python examples/own_item.py --k 4
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass

import numpy as np

import relive
from relive.items import Arena, Expander, Fields, Item, Ring, Window
from relive.testing import ItemContract


@relive.saved_as("chunks")  # the name, `k` and `gamma` are what a save has
@dataclass(frozen=True, kw_only=True)
class Chunks(Item):
    """Draw k-step transitions whose `action` are the actions of all k steps, `[B, k, ...]`.

    `mask`, `[B, k]`, says which of them are there: an episode may end within the chunk. The actions behind its end are
    zeros. `reward`, `discount` and `next_obs` are those of `relive.Transitions(n_step=k)`.
    """

    k: int = 4
    gamma: float = 0.99

    @property
    def steps(self) -> relive.Transitions:
        """The transitions that chunks are made of."""
        return relive.Transitions(n_step=self.k, gamma=self.gamma)

    def window(self, schema: relive.Schema) -> Window:
        """Require k known steps, or an ended episode, for a step to be drawn."""
        return self.steps.window(schema)

    def check(self, schema: relive.Schema, rows: int) -> None:
        """Refuse lanes shorter than k, and what transitions refuse."""
        self.steps.check(schema, rows)

    def bind(self, schema: relive.Schema, ring: Ring, arena: Arena) -> Expander:
        """Make the item's expander for one buffer."""
        return ChunksExpander(self, schema, ring, arena)


class ChunksExpander(Expander):
    """Adds the actions of later steps to what `Transitions` expands."""

    def __init__(self, item: Chunks, schema: relive.Schema, ring: Ring, arena: Arena) -> None:
        self._ring, self._ahead = ring, np.arange(item.k)
        self._transitions = item.steps.bind(schema, ring, arena)
        columns = zip(schema.columns, ring.columns, strict=True)
        self._actions = [(column.keys, array) for column, array in columns if column.keys[0] == "action"]

    def expand(self, slots: np.ndarray, rng: np.random.Generator) -> Fields:
        """Return the chunks that start at `slots`."""
        fields = self._transitions.expand(slots, rng)
        mask = self._ahead < fields["steps"][:, None]
        # The step i rows later in the same lane. Behind the end of the episode the first step stands in.
        later = (slots[:, None] + np.where(mask, self._ahead, 0) * self._ring.lanes) % self._ring.slots
        rows = self._ring.windows(later.reshape(-1), np.ones(2, np.float32)).at.reshape(later.shape)
        for (*path, name), array in self._actions:
            node = fields
            for key in path:
                node = node[key]
            node[name] = array[rows]
            node[name][~mask] = 0
        return {**fields, "mask": mask}


class TestChunks(ItemContract):
    """The promises of every item; pytest runs them, too."""

    item = Chunks(k=3)


def main() -> None:
    """Run the contract, draw the chunks of an episode, save and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=4, help="actions of a chunk (default 4)")
    args = parser.parse_args()
    print(f"Chunks keeps {TestChunks.run_all()} promises of an item")
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 100, item=Chunks(k=args.k), seed=0)
    time, no = np.arange(10.0), np.zeros(10, bool)
    ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=time == 9, truncated=no)
    batch = buffer.read(ids)
    for obs, actions, mask in zip(batch.obs, batch.action, batch.mask, strict=True):
        print(f"at time {obs:.0f} the actions {actions[mask].tolist()}")
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        print(f"saved, and loaded by its name: {relive.load(path).item}")


if __name__ == "__main__":
    main()
