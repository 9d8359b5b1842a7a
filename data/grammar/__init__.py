"""The embedded corpus: English-German pairs with gold word links from a grammar of our own.

``sampling`` and ``phrases`` draw a syntax tree (``trees``) over the ``lexicon``; ``english`` and ``german``
read both sides off it with ``inflection`` and ``numerals``; ``splits`` links the words that realise the
same part of the tree and makes the corpus. Nothing is downloaded, nothing depends on hashes or platform.
"""

from .splits import AlignedPair, embedded_splits, realise

__all__ = ["AlignedPair", "embedded_splits", "realise"]
