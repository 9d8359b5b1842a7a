"""Recompute the figures of a finished experiment from its files, and list the differences."""
