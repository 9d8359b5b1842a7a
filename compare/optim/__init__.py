"""The optimizer, its settings and its learning-rate schedules."""
