"""chrF and chrF++ by sacrebleu."""

from collections.abc import Sequence

from compare.scoring.metrics.base import Metric, MetricOptions, MetricScore


class Chrf(Metric):
    """chrF2, cased."""

    name = "chrf"
    heading = "chrF"
    help = "overlap of character 1- to 6-grams (Popović 2015), cased"
    word_order = 0
    """Longest n-grams of words that count too."""

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score; no option applies, chrF cuts text by its own rules."""
        from sacrebleu.metrics.chrf import CHRF

        metric = CHRF(word_order=self.word_order)
        score = metric.corpus_score(hypotheses, references).score
        return MetricScore(score=score, signature=str(metric.get_signature()))


class ChrfPlusPlus(Chrf):
    """chrF2 with words and pairs of words, cased."""

    name = "chrf++"
    heading = "chrF++"
    help = "overlap of character 1- to 6-grams, words and pairs of words (Popović 2017), cased"
    on_request = True
    word_order = 2
