"""`python -m relive.lerobot learner`: LeRobot's learner, safe against kills."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from relive.errors import ReliveError
from relive.lerobot._learner import prepared

USAGE = """usage: python -m relive.lerobot learner [--relive.every=SECONDS] [--relive.images=exact|rounded|float32] ...

LeRobot's learner, `python -m lerobot.rl.learner`, with its own arguments, and with buffers that are saved every second
in OUTPUT_DIR/relive. A run that was killed goes on with LeRobot's own command for it, `--resume=true`; before its first
checkpoint, with the command that it was begun with.

Example: python -m relive.lerobot learner --config_path=train.json
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 0: done, 2: a wrong argument, or LeRobot is not there."""
    if arguments[:1] != ["learner"]:
        asked = arguments[:1] in (["--help"], ["-h"])
        (sys.stdout if asked else sys.stderr).write(USAGE)
        return 0 if asked else 2
    try:
        train = prepared(arguments[1:])
    except ReliveError as error:
        sys.stderr.write(f"relive.lerobot: {error}\n")
        return 2
    train()
    return 0


# Processes that the learner starts import this module again, under another name.
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
