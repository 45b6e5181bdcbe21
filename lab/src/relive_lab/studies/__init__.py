"""Studies: ways of replaying experience, compared over the same seeds; each is a command `relive-lab compare NAME`."""
