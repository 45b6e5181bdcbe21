"""Pacing: the rate limiter, and batches drawn ahead."""
