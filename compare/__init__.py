"""attnbench from Python: run experiments, load models and results, translate, score, and register extensions.

Everything a command does is a function here; ``docs/api.md`` describes each with an example. Names are
imported when they are first used, so ``import compare`` needs neither torch nor pandas.
"""

import ast
import logging
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the list of public names, for type checkers and for _MODULES
    from compare.analysis.alignment import measure_alignment as measure_alignment
    from compare.analysis.comparison import compare_models as compare_models
    from compare.analysis.finished_experiment import load_finished as load_finished
    from compare.analysis.gold_alignments import read_gold as read_gold
    from compare.analysis.intervals import score_tests as score_tests
    from compare.analysis.proposed_links import count_proposed_links as count_proposed_links
    from compare.analysis.proposed_links import read_proposed_links as read_proposed_links
    from compare.analysis.tuning import tuning_curve as tuning_curve
    from compare.attention.sentence_attention import SentenceAttention as SentenceAttention
    from compare.benchmark.benchmark import measure_growth as measure_growth
    from compare.benchmark.benchmark import planned_timings as planned_timings
    from compare.benchmark.benchmark import run_benchmark as run_benchmark
    from compare.benchmark.candidate import BenchPlan as BenchPlan
    from compare.benchmark.measurement import read_benchmark as read_benchmark
    from compare.check.recompute import check_experiment as check_experiment
    from compare.config.parse import load_experiment as load_experiment
    from compare.config.run import Run as Run
    from compare.config.run import resolve_models as resolve_models
    from compare.config.sections import Experiment as Experiment
    from compare.decoding.length_penalty import LengthPenalty as LengthPenalty
    from compare.decoding.sampling import Sampling as Sampling
    from compare.decoding.search import Hypothesis as Hypothesis
    from compare.decoding.search import SpecialIds as SpecialIds
    from compare.decoding.translator import Translation as Translation
    from compare.decoding.translator import Translator as Translator
    from compare.decoding.translator import generate as generate
    from compare.experiment.dry_run import dry_run as dry_run
    from compare.experiment.dry_run import estimate_experiment as estimate_experiment
    from compare.experiment.fit import fit as fit
    from compare.experiment.launch import Launch as Launch
    from compare.experiment.launch import parse_launch as parse_launch
    from compare.experiment.likelihood import ForcedScores as ForcedScores
    from compare.experiment.likelihood import SentenceScore as SentenceScore
    from compare.experiment.likelihood import score_model as score_model
    from compare.experiment.likelihood import score_runs as score_runs
    from compare.experiment.likelihood import score_translations as score_translations
    from compare.experiment.publish import publish_experiment as publish_experiment
    from compare.experiment.run import run_experiment as run_experiment
    from compare.experiment.tune import TuningPlan as TuningPlan
    from compare.experiment.tune import draw_candidates as draw_candidates
    from compare.experiment.tune import parse_space as parse_space
    from compare.experiment.tune import read_trials as read_trials
    from compare.experiment.tune import tune_experiment as tune_experiment
    from compare.integrations.export import Export as Export
    from compare.integrations.export import export_model as export_model
    from compare.integrations.external_metrics import add_external_scores as add_external_scores
    from compare.integrations.external_metrics import add_run_scores as add_run_scores
    from compare.integrations.hub import from_pretrained as from_pretrained
    from compare.integrations.hub import push_to_hub as push_to_hub
    from compare.integrations.hub import save_pretrained as save_pretrained
    from compare.integrations.trackers import track_metrics as track_metrics
    from compare.integrations.verify import Verdict as Verdict
    from compare.integrations.verify import verify_preset as verify_preset
    from compare.models.catalogue import catalogue_presets as catalogue_presets
    from compare.models.catalogue import describe_preset as describe_preset
    from compare.models.presets import Preset as Preset
    from compare.models.presets import list_presets as list_presets
    from compare.models.presets import register_preset as register_preset
    from compare.models.registry import Family as Family
    from compare.models.registry import Operations as Operations
    from compare.models.registry import build as build
    from compare.models.registry import register_family as register_family
    from compare.optim import OptimConfig as OptimConfig
    from compare.report.attention_plots import draw_attention as draw_attention
    from compare.report.figures import draw_figure as draw_figure
    from compare.report.figures import list_figures as list_figures
    from compare.report.html import build_report as build_report
    from compare.report.table import load_table as load_table
    from compare.report.table import render_table as render_table
    from compare.report.views import draw_plots as draw_plots
    from compare.report.views import write_views as write_views
    from compare.results.records import EnsembleResult as EnsembleResult
    from compare.results.records import LikelihoodSums as LikelihoodSums
    from compare.results.records import read_ensembles as read_ensembles
    from compare.results.result import Result as Result
    from compare.results.store import load_results as load_results
    from compare.results.trained_model import load_ensemble as load_ensemble
    from compare.results.trained_model import load_model as load_model
    from compare.scoring.metrics import Metric as Metric
    from compare.scoring.metrics import MetricOptions as MetricOptions
    from compare.scoring.metrics import MetricScore as MetricScore
    from compare.scoring.metrics import list_metrics as list_metrics
    from compare.scoring.metrics import register_metric as register_metric
    from compare.scoring.score import ScoringOptions as ScoringOptions
    from compare.scoring.score import SystemScores as SystemScores
    from compare.scoring.score import score_files as score_files
    from compare.scoring.score import score_texts as score_texts
    from compare.studies.registry import Study as Study
    from compare.studies.registry import list_studies as list_studies
    from compare.studies.registry import register_study as register_study
    from compare.studies.registry import run_study as run_study
    from compare.system.doctor import diagnose as diagnose
    from compare.system.plugins import load_installed_plugins as load_installed_plugins
    from compare.system.plugins import load_plugins as load_plugins
    from seq2seq.scores import list_scores as list_scores
    from seq2seq.scores import register_score as register_score

_MODULES = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname  # "as" marks what is public
}
"""The module that defines each public name."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from compare.system.plugins import package_version

        return package_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'compare' has no attribute {name!r}")
    value = getattr(import_module(str(_MODULES[name])), name)
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
