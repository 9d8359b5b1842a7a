"""Contrastive accuracy, counted by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from compare.experiment.likelihood import SentenceScore
from compare.studies import contrastive
from compare.studies.contrastive import ContrastAccuracy, measure_contrasts
from data import Contrast


def test_accuracy_is_counted_per_phenomenon_and_distance(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The stand-in gives a text its number as log-probability; a tie is not right."""

    def score(translator: Any, sources: list[str], texts: list[str]) -> SimpleNamespace:
        return SimpleNamespace(sentences=[SentenceScore([text], [float(text)]) for text in texts])

    monkeypatch.setattr(contrastive, "score_translations", score)
    pairs = [
        Contrast("agreement", 0, "a", "-1", "-2"),
        Contrast("agreement", 3, "b", "-2", "-1"),
        Contrast("agreement", 4, "c", "-1", "-1.5"),
        Contrast("agreement", 12, "d", "-1", "-1"),
        Contrast("noun", 0, "e", "-1", "-3"),
    ]
    assert measure_contrasts(None, pairs) == [  # type: ignore[arg-type]
        ContrastAccuracy("agreement", "0", 1, 1),
        ContrastAccuracy("agreement", "3-4", 2, 1),
        ContrastAccuracy("agreement", "9 or more", 1, 0),
        ContrastAccuracy("agreement", "all", 4, 2),
        ContrastAccuracy("noun", "all", 1, 1),
    ]
    assert "1 of 5 pairs differ only in words that the vocabulary lacks" in caplog.text  # "d"


def test_the_interval_is_wilsons():
    """The roots of (p - share)^2 = z^2 p (1 - p) / n, by the formula of the quadratic equation."""
    row = ContrastAccuracy("noun", "all", 10, 8)
    assert row.accuracy == 80
    for end in row.interval:
        p = end / 100
        assert (p - 0.8) ** 2 == pytest.approx(1.959964**2 * p * (1 - p) / 10, abs=1e-6)
    assert row.interval[0] < 80 < row.interval[1]
    assert ContrastAccuracy("noun", "all", 5, 5).interval[1] == pytest.approx(100)
