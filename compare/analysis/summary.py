"""Means and outcome of an experiment, of one training budget or across several."""

from itertools import combinations
from pathlib import Path

from compare.analysis.comparison import Comparison, compare_all
from compare.analysis.cost import BudgetScore, describe_costs
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.statistics import aggregate_seeds
from compare.config.sections import QUICK_TRY
from compare.results.store import Summary, read_results, results_hash
from compare.system.messages import explain


def summarise(folder: Path, *, data_root: str = "", budget: int | None = None) -> Summary:
    """Compute the means and the outcome of an experiment.

    The outcome of the largest budget also says who leads at which budgets, and where the curves cross.

    Args:
        folder: of the experiment.
        data_root: the folder of the corpus; empty: that of the config.
        budget: one of several budgets, as for ``of_budget``.

    Raises:
        ValueError: no run is finished, or a file is damaged.
    """
    finished = load_finished(folder, data_root=data_root, needs_texts=False, budget=budget)
    scored, comparisons, outcome = compare_all(finished)
    means = aggregate_seeds(finished, scored)
    if comparisons:
        outcome = outcome + _compare_budgets(finished, comparisons, data_root)
    if finished.runs[0].run.train.quick:
        outcome = [QUICK_TRY, *outcome]
    return Summary(results=results_hash(finished.results), means=means, outcome=outcome)


def _compare_budgets(
    largest: FinishedExperiment, its_comparisons: list[Comparison], data_root: str
) -> list[str]:
    """Describe the curves over all budgets, if ``largest`` is of the largest of several."""
    done = {run.budget for run in read_results(largest.folder) if run.status == "done"}
    budgets = sorted(filter(None, done))
    if len(budgets) < 2 or largest.runs[0].result.budget != budgets[-1]:
        return []
    *smaller, last = budgets
    experiments = {
        budget: load_finished(largest.folder, data_root=data_root, needs_texts=False, budget=budget)
        for budget in smaller
    }
    comparisons = {budget: compare_all(finished)[1] for budget, finished in experiments.items()}
    comparisons[last] = its_comparisons
    scores = list[BudgetScore]()
    for budget, finished in {**experiments, last: largest}.items():
        for run in finished.trained.runs:
            result, bleu = run.result, finished.outcome_bleu(run.result)
            if bleu is not None:
                flops = (result.train_flops_per_token or 0.0) * (result.tokens_seen or 0)
                scores.append(BudgetScore(result.label, result.seed, budget, flops, bleu))
    labels = list(dict.fromkeys(score.label for score in scores))
    pairs = list(combinations(labels, 2))
    if largest.baseline in labels:
        pairs = [(label, largest.baseline) for label in labels if label != largest.baseline]
    try:
        return describe_costs(scores, pairs, comparisons)
    except ValueError as error:
        return [f"The budgets were not compared: {explain(error)}"]
