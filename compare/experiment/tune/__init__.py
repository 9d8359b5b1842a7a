"""Hyperparameter search with equal effort for every model: the same draws, updates and validation set."""
