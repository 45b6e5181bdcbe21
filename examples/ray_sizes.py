"""What replay shards on a cluster need: memory of each shard, network, calls.

    python examples/ray_sizes.py --capacity 100_000_000 --shards 8 --lanes 256 --obs 84 84 --dtype uint8 --stack 4

The model is arithmetic on the schema. The tests compare it with what shards are sent, send, and occupy.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import relive

FLAGS, PRIORITY, ID, TD_ERROR, FRACTION, MASS = 2, 8, 8, 8, 8, 8
DISCOUNT, STEPS = 4, 8
MARK, TREE, GIVEN = 1, 10.3, 8  # bytes that the ring and the sum tree add to a row
PROCESS = 70e6  # an actor that holds nothing
BLOCK, BLOCK_BYTES, WRITER = (
    32,
    4 << 20,
    8,
)  # steps of a lane that travel together, and bytes, at most; lanes of a writer
# Seconds of a core: a row in its shard and in its writer (23 numbers, 32 lanes); of a draw of 256 and its update the
# part of a shard, and the learner's, for each shard and for itself. An empty call took 0.6 + 0.6 ms there.
ROW, WRITE, SHARD_PART, LEARNER_PART, LEARNER = 2.1e-6, 5.8e-6, 2.3e-3, 0.7e-3, 2.0e-3


@dataclass(frozen=True)
class Plan:
    """A set of shards, and what is asked of it.

    Attributes:
        schema: What one step holds.
        capacity: Rows over all lanes.
        lanes: Environments, over all actors.
        shards: Actors that hold them.
        steps: Steps added a second, over all lanes.
        updates: Updates of the learner a second.
        batch: Items of each.
        prioritized: Whether there are priorities; actors then send their own, too.
    """

    schema: relive.Schema
    capacity: int = 1_000_000
    lanes: int = 32
    shards: int = 2
    steps: float = 10_000.0
    updates: float = 20.0
    batch: int = 512
    prioritized: bool = True

    @property
    def step_bytes(self) -> float:
        """Bytes of a step on the way to its shard: of a block the first stack whole, and the last one's successor."""
        columns = self.schema.columns
        frames = sum(column.field.nbytes for column in columns)
        older = sum(column.field.nbytes * ((column.field.stack or 1) - 1) for column in columns)
        obs = sum(column.field.nbytes * (column.field.stack or 1) for column in columns[: self.schema.num_obs])
        return frames + (older + obs + ID + ID * bool(older)) / self.block + FLAGS + PRIORITY * self.prioritized

    @property
    def block(self) -> int:
        """Steps of a lane that travel together."""
        sizes = [column.field.nbytes * (column.field.stack or 1) for column in self.schema.columns]
        return max(1, min(BLOCK, BLOCK_BYTES // (sum(sizes) * WRITER)))

    @property
    def item_bytes(self) -> int:
        """Bytes of a transition on the way to a learner, and back: the item, its draw, its update."""
        sizes = [column.field.nbytes * (column.field.stack or 1) for column in self.schema.columns]
        item = sum(sizes) + sum(sizes[: self.schema.num_obs]) + FLAGS + DISCOUNT + STEPS + ID + MASS
        return item + FRACTION + (ID + TD_ERROR) * self.prioritized

    @property
    def row_bytes(self) -> float:
        """Bytes of a row in a shard."""
        return self.schema.nbytes + MARK + (TREE + GIVEN if self.prioritized else 4)

    @property
    def shard_bytes(self) -> float:
        """Memory of a full shard."""
        steps = self.capacity // self.lanes
        rows = steps + max(min(steps, 64), steps // 16)  # some for final observations
        return rows * math.ceil(self.lanes / self.shards) * self.row_bytes + PROCESS

    def table(self) -> str:
        """Format all of it, for people."""
        to_shard = self.steps * self.step_bytes / self.shards
        learner = self.updates * self.batch * self.item_bytes
        lines = {
            "memory of a shard": f"{self.shard_bytes / 1e9:.2f} GB ({self.row_bytes:.0f} bytes a row)",
            "a step on the wire": f"{self.step_bytes:,.0f} bytes",
            "an item on the wire": f"{self.item_bytes:,} bytes",
            "network into a shard, adds": f"{8 * to_shard / 1e6:,.1f} Mbit/s",
            "network of the learner": f"{8 * learner / 1e6:,.1f} Mbit/s",
            "blocks into a shard": f"{self.steps / self.lanes / self.block * self.writers:,.1f} a second",
            "calls of the learner": f"{2 * self.updates * self.shards:,.1f} a second",
            "cores of a shard": f"{self.steps / self.shards * ROW + self.updates * SHARD_PART:.2f}",
            "cores of all writers": f"{self.steps * WRITE:.2f}",
            "cores of the learner's draws": f"{self.updates * (LEARNER + self.shards * LEARNER_PART):.2f}",
        }
        return "\n".join(f"{name:30} {value}" for name, value in lines.items())

    @property
    def writers(self) -> int:
        """Writers of a shard, if each actor has so many environments."""
        return math.ceil(self.lanes / WRITER)


def main(arguments: list[str] | None = None) -> None:
    """Print what a set of shards takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=100_000_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--lanes", type=int, default=256, help="environments, over all actors")
    parser.add_argument("--obs", type=int, nargs="*", default=[17], help="shape of an observation, without the stack")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--stack", type=int, default=1)
    parser.add_argument("--action", type=int, nargs="*", default=[6])
    parser.add_argument("--steps", type=float, default=10_000, help="steps added a second, over all environments")
    parser.add_argument("--updates", type=float, default=20, help="updates of the learner a second")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--uniform", action="store_true", help="without priorities")
    args = parser.parse_args(arguments)
    stack = {"stack": args.stack} if args.stack > 1 else {}
    schema = relive.Schema(
        obs=relive.Field(tuple(args.obs), args.dtype, **stack), action=relive.Field(tuple(args.action))
    )
    sizes = {"capacity": args.capacity, "lanes": args.lanes, "shards": args.shards}
    pace = {"steps": args.steps, "updates": args.updates, "batch": args.batch, "prioritized": not args.uniform}
    print(Plan(schema, **sizes, **pace).table())


if __name__ == "__main__":
    main()
