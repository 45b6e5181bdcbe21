"""The examples keep the contracts, too, and shards draw by them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "examples"), str(ROOT / "tests" / "shards")]
