"""A replay buffer whose rows are on a GPU: all of its state is in tensors, and no call waits for the device."""
