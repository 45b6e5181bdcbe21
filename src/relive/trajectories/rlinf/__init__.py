"""RLinf's directories: recognised, loaded, and written so that RLinf loads them."""

from ._load import is_one as is_one
from ._load import load as load
from ._write import Taken as Taken
from ._write import save as save
from ._write import taken_from as taken_from
from ._write import write as write
