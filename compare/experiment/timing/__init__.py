"""Timing of all models of an experiment in turn, and the figures of speed that follow."""
