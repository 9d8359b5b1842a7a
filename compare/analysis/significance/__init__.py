"""Confidence intervals and paired significance tests over test sets and seeds."""
