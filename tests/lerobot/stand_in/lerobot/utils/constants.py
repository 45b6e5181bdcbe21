"""Where data sets are by default."""

import os
from pathlib import Path

HF_LEROBOT_HOME = Path(os.environ.get("HF_LEROBOT_HOME", "lerobot_home"))
