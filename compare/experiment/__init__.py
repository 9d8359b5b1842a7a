"""From an experiment to results: prepare the data, resolve the runs, run each of them."""
