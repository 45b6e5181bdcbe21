"""How fast relive is beside other replay buffers: one question a file.

Run all of it with `relive bench`, one question with `relive bench --questions per_cycle`.
`docs/measurements.md` says how the figures come about.
"""
