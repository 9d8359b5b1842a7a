"""Ways to run the runs of an experiment other than one after the other: side by side, or on a cluster."""
