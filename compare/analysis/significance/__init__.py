"""Confidence intervals and paired significance tests over test sets and seeds.

References:
- Abramowitz and Stegun 1964, Handbook of Mathematical Functions.
- Chen and Cherry 2014, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU. WMT.
- Cohen 1988, Statistical Power Analysis for the Behavioral Sciences. Erlbaum.
- Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2).
- Koehn 2004, Statistical Significance Tests for Machine Translation Evaluation. EMNLP.
- Noreen 1989, Computer-Intensive Methods for Testing Hypotheses. Wiley.
- Papineni et al. 2002, BLEU: a Method for Automatic Evaluation of Machine Translation. ACL.
- Popović 2015, chrF: Character n-gram F-score for Automatic MT Evaluation. WMT.
- Riezler and Maxwell 2005, On Some Pitfalls in Automatic Evaluation and Significance Testing for MT. ACL
  Workshop on Intrinsic and Extrinsic Evaluation Measures.
- Satterthwaite 1946, An Approximate Distribution of Estimates of Variance Components. Biometrics Bulletin
  2(6).
"""
