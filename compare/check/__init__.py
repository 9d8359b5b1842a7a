"""Recompute every figure of a finished experiment from its files and list the differences."""
