"""Saved models, export, trackers, metrics from outside, and the checks that a model must pass."""
