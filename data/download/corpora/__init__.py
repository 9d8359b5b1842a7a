"""The named corpora: where their files are, and how they become folders of parallel lines.

This was written and tested without network access, against a local server; no URL was ever requested. The
digests show whether a file is the right one. The splits of Multi30k and WMT14 are those of torchtext 0.6.0's
dataset classes; for the others see ``ted`` and ``tatoeba``.
"""
