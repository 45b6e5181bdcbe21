"""RLinf's directories: recognised, opened, and written so that RLinf loads them."""

from ._load import is_rlinf as is_rlinf
from ._load import opened as opened
from ._write import write as write
