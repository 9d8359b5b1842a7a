"""Registry of metrics: one class per metric, each in its own file."""

from compare.scoring.metrics.base import Metric, MetricOptions, MetricScore
from compare.scoring.metrics.bleu import Bleu
from compare.scoring.metrics.chrf import Chrf
from compare.scoring.metrics.ter import Ter

__all__ = ["METRICS", "Metric", "MetricOptions", "MetricScore", "metric_of"]

METRICS: dict[str, Metric] = {metric.name: metric for metric in (Bleu(), Chrf(), Ter())}
"""Every metric by name, in the order of tables."""


def metric_of(column: str) -> Metric | None:
    """Return the metric of a score column such as "ter_signature_test_long"; None for other columns."""
    names = [name for name in METRICS if column == name or column.startswith(f"{name}_")]
    return METRICS[max(names, key=len)] if names else None
