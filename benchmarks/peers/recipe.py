"""Sizes and settings that all toolkits share; each one gets them under its own option names."""

LABEL_SMOOTHING = 0.1
CLIP_NORM = 1.0
DROPOUT = 0.1
"""Dropout of embeddings, sublayers and readout; none on attention weights where that is an option."""
LEARNING_RATE = 1e-3
BETA2 = 0.98
"""Of Adam."""

D_MODEL, HEADS, LAYERS, FFN = 256, 4, 3, 1024
"""The Transformer; as many layers on each side."""

EMBEDDING, HIDDEN = 256, 512
"""The LSTMs: one layer per side, the encoder has half of HIDDEN for each direction."""

STEPS = 20
"""Decoder steps of forced decoding."""
