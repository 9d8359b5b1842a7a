"""Translation quality by length, word frequency, copied names and numbers, faults, and training cost.

References:
- Malaviya et al. 2018, Sparse and Constrained Attention for Neural Machine Translation. ACL.
- Neubig et al. 2019, compare-mt: A Tool for Holistic Comparison of Language Generation Systems. NAACL
  Demonstrations.
"""
