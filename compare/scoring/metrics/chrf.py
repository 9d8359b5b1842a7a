"""chrF by sacrebleu."""

from collections.abc import Sequence

from compare.scoring.metrics.base import Metric, MetricOptions, MetricScore


class Chrf(Metric):
    """chrF2, cased."""

    name = "chrf"
    heading = "chrF"
    help = "overlap of character 1- to 6-grams (Popović 2015), cased"

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score; no option applies, chrF cuts text by its own rules."""
        from sacrebleu.metrics.chrf import CHRF

        metric = CHRF()
        score = metric.corpus_score(hypotheses, references).score
        return MetricScore(score=score, signature=str(metric.get_signature()))
