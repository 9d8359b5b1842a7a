"""Parallel text, vocabularies and batches of tensors; imports no other package of the project."""
