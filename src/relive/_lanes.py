"""Numbers that the ring's arrays hold: bits of a row's mark, columns of a lane's counters, bits of the notices."""

# Bits of a row's mark. A row without STEP holds an observation only: a successor (boundary row), or, with HISTORY, an
# older frame of a stream's first observation. FIRST: a stream begins here. START: an item may begin here. LOST on a
# step: it ended without a final observation; LOST without STEP: this was a step that a cut dropped.
STEP, TERMINATED, TRUNCATED, CUT, LOST, FIRST, HISTORY, START = 1, 2, 4, 8, 16, 32, 64, 128
END = TERMINATED | TRUNCATED | CUT

# Columns of the per-lane counters, as `Lane` in native/lanes.hpp describes them.
HEAD, MEMORY, READY, OLDEST, HELD, STEPS, DRAWABLE, STORED = range(8)
READY_STEPS, CUTS, UNBOOTSTRAPPED, ENDS, REPEATS = range(8, 13)
COUNTERS = 16

# Notices, as bits; `Notices` in _notices.py has their texts.
MANY_CUTS, REPEATED_FINALS, MANY_BOUNDARIES = 2, 4, 8
