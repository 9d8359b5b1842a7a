"""The corpora that have names here, and how each becomes a folder of parallel lines.

No address was ever asked by us: this was written and tested without a network, against a server of our own.
What vouches for a file is its hash. Splits are those that torchtext 0.6.0's dataset classes name, where these
have the corpus (Multi30k, WMT14); ``ted`` and ``tatoeba`` say what theirs are.
"""
