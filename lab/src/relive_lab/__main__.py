"""`python -m relive_lab` is the command `relive-lab`."""

import sys

from relive_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
