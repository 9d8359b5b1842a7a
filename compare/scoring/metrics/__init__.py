"""Registry of metrics: one class per metric, each in its own file."""

import re

from compare.scoring.metrics.base import Metric, MetricOptions, MetricScore
from compare.scoring.metrics.bleu import Bleu
from compare.scoring.metrics.chrf import Chrf, ChrfPlusPlus
from compare.scoring.metrics.ter import Ter
from compare.system.plugins import track_registry

__all__ = [
    "METRICS",
    "Metric",
    "MetricOptions",
    "MetricScore",
    "list_metrics",
    "metric_of",
    "register_metric",
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in (Bleu(), Chrf(), ChrfPlusPlus(), Ter())}
"""Every metric by name, in the order of tables."""
track_registry("metric", METRICS)


def list_metrics() -> list[str]:
    """Return the names of all metrics in the order of tables, registered ones included."""
    return list(METRICS)


def register_metric(metric: Metric) -> None:
    """Add a metric, so that ``score_texts``, results, tables and reports can compute and show it.

    Args:
        metric: an instance of a subclass of ``Metric``; ``metric.name`` is its name in options and columns.

    Raises:
        ValueError: not an instance of such a subclass, without name, heading or help, or the name is taken
            or has other characters than lower-case letters, digits and underscores.
    """
    if isinstance(metric, type):
        raise ValueError(f"{metric.__name__} is a class: register an instance, {metric.__name__}()")
    if not isinstance(metric, Metric):
        raise ValueError(f"a metric must be an instance of a subclass of Metric, found {metric!r:.80}")
    for attribute in ("name", "heading", "help"):
        if not getattr(metric, attribute, ""):
            raise ValueError(f"{type(metric).__name__} has no {attribute}: set it in the class")
    if not re.fullmatch("[a-z][a-z0-9_]*", metric.name):
        raise ValueError(
            f"metric {metric.name!r}: a name has only lower-case letters, digits and underscores, "
            "and begins with a letter"
        )
    if metric.name in METRICS:
        raise ValueError(f"the metric {metric.name!r} exists already: choose another name")
    METRICS[metric.name] = metric


def metric_of(column: str) -> Metric | None:
    """Return the metric of a score column such as "ter_signature_test_long"; None for other columns."""
    names = [name for name in METRICS if column == name or column.startswith(f"{name}_")]
    return METRICS[max(names, key=len)] if names else None
