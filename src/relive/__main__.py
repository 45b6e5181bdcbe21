"""`python -m relive` is the `relive` command."""

from __future__ import annotations

import sys

from relive.cli import main

# Processes that a comparison starts import this module again, under another name.
if __name__ == "__main__":
    sys.exit(main())
