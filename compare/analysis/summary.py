"""Summary of an experiment: means, comparisons and outcome, of one or several budgets."""

from pathlib import Path

from compare.analysis.comparison import Comparison, compare_all
from compare.analysis.cost import cost_points, describe_costs, make_curves
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.statistics import aggregate_seeds
from compare.config.sections import QUICK_TRY
from compare.results.store import Summary, results_hash
from compare.system.messages import explain


def summarise(folder: Path, *, data_root: str = "", budget: int | None = None) -> Summary:
    """Compute the means and the outcome of an experiment; errors are those of ``load_finished``.

    The outcome of the largest budget also compares the budgets.
    """
    finished = load_finished(folder, data_root=data_root, needs_texts=False, budget=budget)
    scored, comparisons, outcome = compare_all(finished)
    means = aggregate_seeds(finished, scored)
    if comparisons and finished.is_largest_budget:
        outcome = outcome + _compare_budgets(finished, comparisons)
    if finished.runs[0].run.train.quick:
        outcome = [QUICK_TRY, *outcome]
    return Summary(results=results_hash(finished.results), means=means, outcome=outcome)


def _compare_budgets(largest: FinishedExperiment, its_comparisons: list[Comparison]) -> list[str]:
    *smaller, last = largest.budgets
    comparisons = {budget: compare_all(largest.at_budget(budget))[1] for budget in smaller}
    comparisons[last] = its_comparisons
    curves = make_curves(cost_points(largest).rows)
    pairs = [pair for pair in largest.planned_pairs if {*pair} <= curves.keys()]
    try:
        return describe_costs(curves, pairs, comparisons)
    except ValueError as error:
        return [f"The budgets were not compared: {explain(error)}"]
