"""Attention as word alignment: gold links, links derived from attention weights, and alignment error rate.

``pharaoh`` reads files of gold links; ``gold`` maps them to the words of sentence pairs; ``outside`` reports
links to words that a sentence does not have. ``pieces`` maps the pieces of a vocabulary to words;
``word_attention`` computes attention weights between words. ``links`` turns weights into links, ``aer``
scores links, ``entropy`` measures how concentrated weights are, ``measurement`` sums both over a text.
``experiment_alignment`` and ``experiment_entropy`` do this for a finished experiment. ``link_files`` writes
the links of a model. ``proposed_links`` reads and scores the output of word aligners, ``giza`` that of
GIZA++; ``symmetrisation`` combines two directions.

References:
- Fraser and Marcu 2007, Measuring Word Alignment Quality for Statistical Machine Translation. Computational
  Linguistics 33(3).
- Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to? IJCNLP.
- Koehn and Knowles 2017, Six Challenges for Neural Machine Translation. WNMT.
- Koehn et al. 2005, Edinburgh System Description for the 2005 IWSLT Speech Translation Evaluation. IWSLT.
- Luong et al. 2015, Effective Approaches to Attention-based Neural Machine Translation. EMNLP.
- Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment. HLT-NAACL Workshop on Building and
  Using Parallel Texts.
- Och and Ney 2003, A Systematic Comparison of Various Statistical Alignment Models. Computational Linguistics
  29(1).
"""
