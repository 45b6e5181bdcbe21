"""The names of the arrays in a save."""

COUNTERS, CLOCK = "lanes/counters", "lanes/clock"
MARKS, GIVEN = "rows/marks", "rows/given"
LIMITER = "limiter"
LAST_IDS, LAST_WEIGHTS = "last/ids", "last/weights"
# What the ring keeps for each row; what the sampler keeps for each, and beside them; the units still being written; the
# units of writable fields.
ROWS, SLOTS, WHOLE, NEXT, VALUES = "rows/", "slots/", "whole/", "next/", "values/"


def name_of(keys: tuple[str, ...]) -> str:
    """Return the name of a field in a file."""
    return ".".join(keys)
