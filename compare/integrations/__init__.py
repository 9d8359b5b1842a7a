"""Saved models, export, trackers, external metrics, and the checks that a model must pass."""
