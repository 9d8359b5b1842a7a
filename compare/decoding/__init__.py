"""Greedy and beam search, and the translator that maps text to text."""
