"""The flags of a device buffer's rows, as its saves have them."""

# A row without STEP is a hole: its lane took no part. PAUSE: a hole follows in mid-episode. FIRST: the first step of a
# stream. LOST: the final was never known.
STEP, TERMINATED, TRUNCATED, CUT, PAUSE, FIRST, LOST = (1 << bit for bit in range(7))
OVER = TERMINATED | TRUNCATED | CUT  # the successor is a final
STOP = OVER | PAUSE  # windows end here
