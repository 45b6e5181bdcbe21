"""The names of the small arrays in a save."""

COUNTERS, CLOCK = "lanes/counters", "lanes/clock"
MARKS, GIVEN, ARRIVAL = "rows/marks", "rows/given", "rows/arrival"
LIMITER = "limiter"
LAST_IDS, LAST_WEIGHTS = "last/ids", "last/weights"
# What the ring keeps for each row; what the sampler keeps for each, and beside them; the units still being written.
ROWS, SLOTS, WHOLE, NEXT = "rows/", "slots/", "whole/", "next/"
