"""Generator of the embedded corpus: English-German pairs with gold word alignments, from a grammar.

``sampling`` and ``phrases`` draw a syntax tree (``trees``) over the ``lexicon``. ``english`` and ``german``
render it in both languages; ``sampling`` links the words that realise the same part of the tree and builds
the corpus; ``contrasts`` makes pairs of a right and a wrong translation.
Neither depends on the platform or on hash seeds.
"""

from data.grammar.contrasts import BINS, PHENOMENA, Contrast, contrastive_pairs
from data.grammar.sampling import AlignedPair, embedded_splits, realise

__all__ = [
    "BINS",
    "PHENOMENA",
    "AlignedPair",
    "Contrast",
    "contrastive_pairs",
    "embedded_splits",
    "realise",
]
