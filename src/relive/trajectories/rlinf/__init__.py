"""RLinf's directories: recognised, loaded, and written so that RLinf loads them."""

from ._load import is_rlinf as is_rlinf
from ._load import load as load
from ._write import write as write
