"""Replay memory over machines: shards as actors of a Ray cluster, drawn from as one buffer; the extra `ray`."""

from ._saving import SavedShards as SavedShards
from ._writer import Writer as Writer
from .shards import Shards as Shards
from .stats import ShardsStats as ShardsStats
from .stats import ShardStats as ShardStats
