"""Connections to what lies outside this repository: plug-ins, trackers of experiments, other metrics."""
