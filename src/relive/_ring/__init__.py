"""The ring: rows of lanes, the kernels that read and write them, and the plans that the kernels return."""
