"""Loss, optimizer, training loop, checkpoints, trainer state and the log of metrics."""
