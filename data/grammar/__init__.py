"""Generator of the embedded corpus: English-German pairs with gold word alignments, from a grammar.

``sampling`` and ``phrases`` draw a syntax tree (``trees``) over the ``lexicon``. ``english`` and ``german``
render it in both languages with ``inflection`` and ``numerals``. ``splits`` links the words that realise the
same part of the tree and builds the corpus. The corpus does not depend on the platform or on hash seeds.
"""

from .splits import AlignedPair, embedded_splits, realise

__all__ = ["AlignedPair", "embedded_splits", "realise"]
