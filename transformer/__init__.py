"""The Transformer encoder-decoder (Vaswani et al. 2017); imports no other room."""
