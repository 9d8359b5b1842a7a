"""Benchmark of an experiment's models: speed, memory and energy, and changes since an earlier result."""
