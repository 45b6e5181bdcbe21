"""The parts of `ReplayBuffer`."""
