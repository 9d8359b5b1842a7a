"""attnbench from Python: run experiments, load models and results, translate, score, and register extensions.

Everything a command does is a function here; ``docs/api.md`` describes each with an example. Names are
imported when they are first used, so ``import compare`` needs neither torch nor pandas.
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compare.analysis.alignment import measure_alignment
    from compare.analysis.comparison import compare_models
    from compare.analysis.finished_experiment import load_finished
    from compare.analysis.gold_alignments import read_gold
    from compare.analysis.intervals import score_tests
    from compare.analysis.proposed_links import count_proposed_links, read_proposed_links
    from compare.analysis.tuning import tuning_curve
    from compare.attention.sentence_attention import SentenceAttention
    from compare.benchmark.benchmark import measure_growth, planned_timings, run_benchmark
    from compare.benchmark.candidate import BenchPlan
    from compare.benchmark.measurement import read_benchmark
    from compare.check.recompute import check_experiment
    from compare.config.parse import load_experiment
    from compare.config.plugins import load_installed_plugins, load_plugins
    from compare.config.run import Run, resolve_models
    from compare.config.sections import Experiment
    from compare.decoding.beams import Hypothesis, SpecialIds
    from compare.decoding.length_penalty import LengthPenalty
    from compare.decoding.sampling import Sampling
    from compare.decoding.search import generate
    from compare.decoding.translator import Translation, Translator
    from compare.experiment.dry_run import dry_run, estimate_experiment
    from compare.experiment.fit import fit
    from compare.experiment.launch import Launch, parse_launch
    from compare.experiment.likelihood import (
        ForcedScores,
        SentenceScore,
        score_model,
        score_runs,
        score_translations,
    )
    from compare.experiment.publish import publish_experiment
    from compare.experiment.run import run_experiment
    from compare.experiment.tune import TuningPlan, draw_candidates, parse_space, read_trials, tune_experiment
    from compare.integrations.export import Export, export_model
    from compare.integrations.external_metrics import add_external_scores, add_run_scores
    from compare.integrations.hub import from_pretrained, push_to_hub, save_pretrained
    from compare.integrations.trackers import track_metrics
    from compare.integrations.verify import Verdict, verify_preset
    from compare.models.catalogue import catalogue_presets, describe_preset
    from compare.models.presets import Preset, list_presets, register_preset
    from compare.models.registry import Family, Operations, build, register_family
    from compare.optim import OptimConfig
    from compare.report.attention_plots import draw_attention
    from compare.report.figures import draw_figure, list_figures
    from compare.report.html import build_report
    from compare.report.table import load_table, render_table
    from compare.report.views import draw_plots, write_views
    from compare.results.records import EnsembleResult, LikelihoodSums, read_ensembles
    from compare.results.result import Result
    from compare.results.store import load_results
    from compare.results.trained_model import load_ensemble, load_model
    from compare.scoring.metrics import Metric, MetricOptions, MetricScore, list_metrics, register_metric
    from compare.scoring.score import ScoringOptions, SystemScores, score_files, score_texts
    from compare.studies.registry import Study, list_studies, register_study, run_study
    from compare.system.doctor import diagnose
    from seq2seq.scores import list_scores, register_score

_MODULES = {
    "BenchPlan": "compare.benchmark.candidate",
    "EnsembleResult": "compare.results.records",
    "Experiment": "compare.config.sections",
    "Export": "compare.integrations.export",
    "Family": "compare.models.registry",
    "ForcedScores": "compare.experiment.likelihood",
    "Hypothesis": "compare.decoding.beams",
    "Launch": "compare.experiment.launch",
    "LengthPenalty": "compare.decoding.length_penalty",
    "LikelihoodSums": "compare.results.records",
    "Metric": "compare.scoring.metrics",
    "MetricOptions": "compare.scoring.metrics",
    "MetricScore": "compare.scoring.metrics",
    "Operations": "compare.models.registry",
    "OptimConfig": "compare.optim",
    "Preset": "compare.models.presets",
    "Result": "compare.results.result",
    "Run": "compare.config.run",
    "Sampling": "compare.decoding.sampling",
    "ScoringOptions": "compare.scoring.score",
    "SentenceScore": "compare.experiment.likelihood",
    "SentenceAttention": "compare.attention.sentence_attention",
    "SpecialIds": "compare.decoding.beams",
    "Study": "compare.studies.registry",
    "SystemScores": "compare.scoring.score",
    "Translation": "compare.decoding.translator",
    "Translator": "compare.decoding.translator",
    "TuningPlan": "compare.experiment.tune",
    "Verdict": "compare.integrations.verify",
    "add_external_scores": "compare.integrations.external_metrics",
    "add_run_scores": "compare.integrations.external_metrics",
    "build": "compare.models.registry",
    "save_pretrained": "compare.integrations.hub",
    "push_to_hub": "compare.integrations.hub",
    "export_model": "compare.integrations.export",
    "fit": "compare.experiment.fit",
    "from_pretrained": "compare.integrations.hub",
    "build_report": "compare.report.html",
    "catalogue_presets": "compare.models.catalogue",
    "check_experiment": "compare.check.recompute",
    "compare_models": "compare.analysis.comparison",
    "count_proposed_links": "compare.analysis.proposed_links",
    "describe_preset": "compare.models.catalogue",
    "diagnose": "compare.system.doctor",
    "draw_attention": "compare.report.attention_plots",
    "draw_figure": "compare.report.figures",
    "draw_plots": "compare.report.views",
    "dry_run": "compare.experiment.dry_run",
    "estimate_experiment": "compare.experiment.dry_run",
    "generate": "compare.decoding.search",
    "list_figures": "compare.report.figures",
    "list_metrics": "compare.scoring.metrics",
    "list_presets": "compare.models.presets",
    "list_scores": "seq2seq.scores",
    "list_studies": "compare.studies.registry",
    "load_ensemble": "compare.results.trained_model",
    "load_experiment": "compare.config.parse",
    "load_finished": "compare.analysis.finished_experiment",
    "load_installed_plugins": "compare.config.plugins",
    "load_model": "compare.results.trained_model",
    "load_plugins": "compare.config.plugins",
    "load_results": "compare.results.store",
    "load_table": "compare.report.table",
    "measure_alignment": "compare.analysis.alignment",
    "measure_growth": "compare.benchmark.benchmark",
    "draw_candidates": "compare.experiment.tune",
    "parse_launch": "compare.experiment.launch",
    "parse_space": "compare.experiment.tune",
    "planned_timings": "compare.benchmark.benchmark",
    "publish_experiment": "compare.experiment.publish",
    "read_benchmark": "compare.benchmark.measurement",
    "read_ensembles": "compare.results.records",
    "read_gold": "compare.analysis.gold_alignments",
    "read_proposed_links": "compare.analysis.proposed_links",
    "read_trials": "compare.experiment.tune",
    "register_family": "compare.models.registry",
    "register_metric": "compare.scoring.metrics",
    "register_preset": "compare.models.presets",
    "register_score": "seq2seq.scores",
    "register_study": "compare.studies.registry",
    "render_table": "compare.report.table",
    "resolve_models": "compare.config.run",
    "run_benchmark": "compare.benchmark.benchmark",
    "run_experiment": "compare.experiment.run",
    "run_study": "compare.studies.registry",
    "score_files": "compare.scoring.score",
    "score_model": "compare.experiment.likelihood",
    "score_runs": "compare.experiment.likelihood",
    "score_tests": "compare.analysis.intervals",
    "score_texts": "compare.scoring.score",
    "score_translations": "compare.experiment.likelihood",
    "track_metrics": "compare.integrations.trackers",
    "tune_experiment": "compare.experiment.tune",
    "tuning_curve": "compare.analysis.tuning",
    "verify_preset": "compare.integrations.verify",
    "write_views": "compare.report.views",
}
"""The module that defines each public name."""

__all__ = [  # noqa: RUF022 (one list, by what it is for)
    "__version__",
    "load_experiment",
    "resolve_models",
    "dry_run",
    "estimate_experiment",
    "run_experiment",
    "Launch",
    "parse_launch",
    "track_metrics",
    "check_experiment",
    "publish_experiment",
    "tune_experiment",
    "TuningPlan",
    "draw_candidates",
    "parse_space",
    "read_trials",
    "tuning_curve",
    "Experiment",
    "Run",
    "load_results",
    "load_table",
    "render_table",
    "write_views",
    "build_report",
    "draw_plots",
    "draw_attention",
    "list_figures",
    "draw_figure",
    "Result",
    "load_model",
    "fit",
    "save_pretrained",
    "from_pretrained",
    "push_to_hub",
    "export_model",
    "Export",
    "load_ensemble",
    "read_ensembles",
    "EnsembleResult",
    "Translator",
    "SentenceAttention",
    "Translation",
    "Sampling",
    "generate",
    "Hypothesis",
    "SpecialIds",
    "LengthPenalty",
    "measure_alignment",
    "read_gold",
    "read_proposed_links",
    "count_proposed_links",
    "score_texts",
    "score_files",
    "add_external_scores",
    "add_run_scores",
    "score_runs",
    "score_model",
    "score_translations",
    "ForcedScores",
    "SentenceScore",
    "LikelihoodSums",
    "ScoringOptions",
    "SystemScores",
    "load_finished",
    "score_tests",
    "compare_models",
    "run_benchmark",
    "planned_timings",
    "measure_growth",
    "read_benchmark",
    "BenchPlan",
    "list_studies",
    "run_study",
    "diagnose",
    "list_presets",
    "catalogue_presets",
    "describe_preset",
    "build",
    "Preset",
    "OptimConfig",
    "register_preset",
    "register_family",
    "Family",
    "Operations",
    "list_scores",
    "register_score",
    "list_metrics",
    "register_metric",
    "Metric",
    "MetricOptions",
    "MetricScore",
    "register_study",
    "Study",
    "load_plugins",
    "load_installed_plugins",
    "verify_preset",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from compare.system.plugins import package_version

        return package_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'compare' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, for tab completion."""
    return sorted(__all__)


def _refuse_hidden_packages() -> None:
    """Fail with a clear message where a module of the user's own hides one of our packages.

    Raises:
        ImportError: naming the file that hides it.
    """
    for name in ("data", "seq2seq", "transformer"):
        ours = Path(__file__).resolve().parent.parent / name / "__init__.py"
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found != ours:
            hiding = found or "a folder without __init__.py"
            raise ImportError(
                f"attnbench's package {name!r} ({ours.parent}) is hidden by {hiding}: "
                "rename that file, or start Python in another folder"
            )


_refuse_hidden_packages()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
