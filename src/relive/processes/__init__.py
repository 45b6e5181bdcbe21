"""Several processes at one buffer: claims of lanes, draws beside writers, further readers."""
