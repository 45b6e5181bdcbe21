"""The numbers that a device buffer counts, by their places in its saves."""

# SERVED are the draws that found items, APPLIED the updates of items that could be drawn; those from UNKNOWN on are
# errors.
DRAWS, DRAWN, SERVED, UPDATED, APPLIED, SHUNNED, ABSENT = range(7)
UNKNOWN, NOT_FINITE, UNFIT, UNWRITTEN, MISPLACED, BETA = range(7, 13)
COUNTS = 13
