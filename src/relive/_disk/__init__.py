"""Files: folders, atomic replacement, safetensors headers."""
