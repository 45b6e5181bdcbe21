"""Studies: ways of replaying experience compared over the same seeds, each with its command `relive compare NAME`."""
