"""Loss, training step and loop, validation, checkpoints, trainer state and metrics log."""
