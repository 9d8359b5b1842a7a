"""What every racer builds, trains and decodes: sizes and settings, told to each toolkit in its own words."""

LABEL_SMOOTHING = 0.1
CLIP_NORM = 1.0
DROPOUT = 0.1
"""Of embeddings, sublayers and readout; of attention weights none where a toolkit lets one choose."""
LEARNING_RATE = 1e-3
BETA2 = 0.98
"""Of Adam."""

D_MODEL, HEADS, LAYERS, FFN = 256, 4, 3, 1024
"""The Transformer; as many layers on each side."""

EMBEDDING, HIDDEN = 256, 512
"""The LSTMs: one layer a side, the encoder has half of HIDDEN for each direction."""

STEPS = 20
"""Decoder steps of forced decoding."""
