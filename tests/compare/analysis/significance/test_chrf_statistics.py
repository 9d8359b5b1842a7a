"""chrF from sentence statistics compared with sacrebleu, for whole texts and single sentences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from compare.analysis.statistics import chrf, sentence_ngrams

SENTENCE = st.text(alphabet="ab ,é", max_size=12)
TEXTS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6)


def test_ngrams_by_hand():
    """Of "abc" and "abd": 3 characters each, 2 in both; 2 bigrams each, 1 in both; a trigram each."""
    counts = sentence_ngrams(["a bc"], ["ab d"])
    assert counts.tolist() == [[3, 3, 2, 2, 2, 1, 1, 1, 0, *[0] * 9]]
    precision = (2 / 3 + 1 / 2 + 0) / 3
    assert chrf(counts[0]) == pytest.approx(100 * precision)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_scores_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    counts = sentence_ngrams(hypotheses, references)
    expected = CHRF().corpus_score(hypotheses, [references]).score
    assert float(chrf(counts.sum(axis=0))) == pytest.approx(expected, abs=1e-9)
    singles = [CHRF().sentence_score(line, [reference]).score for line, reference in pairs]
    assert chrf(counts) == pytest.approx(np.array(singles), abs=1e-9)


def test_fewer_references_than_hypotheses_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        sentence_ngrams(["a", "b"], ["a"])
