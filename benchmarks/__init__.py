"""How fast relive is beside other replay buffers: one question a file.

Run all of it with `relive bench`, one question with `python -m benchmarks.per_cycle` from the root of a source
checkout. `docs/measurements.md` says how the figures come about.
"""
