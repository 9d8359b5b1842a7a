"""Attention weights of one sentence and its translation: words on the axes, heat maps, interactive viewer."""
