"""Optimizer, learning-rate schedules and their config."""
