"""From an experiment to results: data, budget, training, decoding, timing, tuning, publication."""
