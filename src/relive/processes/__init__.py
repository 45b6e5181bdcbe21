"""Several processes at one buffer: who writes which lane, what a draw may trust, writers, further readers."""
