"""Parallel text in, batches of tensors and masks out; imports no other room."""
