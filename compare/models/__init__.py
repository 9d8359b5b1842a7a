"""Model families, presets, hybrids of two families, and the FLOPs of each."""
