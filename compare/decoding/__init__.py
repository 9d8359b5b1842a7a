"""Greedy and beam search, translation of text, and timing of both."""
