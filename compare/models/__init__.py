"""One registry entry per model family, the presets, and the hybrids of both families."""
