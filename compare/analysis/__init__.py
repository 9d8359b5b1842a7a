"""Analyses of finished experiments: significance of differences, word alignment, and translation quality."""
