"""Saved models, export, trackers and external metrics."""
