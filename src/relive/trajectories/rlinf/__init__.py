"""RLinf's directories: recognised, opened, and written so that RLinf loads them."""

from ._load import FORMAT as FORMAT
