"""Commands that train and time: run, tune, bench, study."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import compare
from compare.cli import options as cli
from compare.report.table_formats import draw, table_text, terminal_width
from compare.results.formatting import UNKNOWN, format_number, listing
from compare.settings import convert_setting
from compare.system.log import Reporter, format_duration
from compare.system.processes import is_main_process

if TYPE_CHECKING:
    from compare.experiment.estimate import RunEstimate

logger = logging.getLogger(__name__)


@cli.app.command(cls=cli.Command)
def run(
    config: cli.Config,
    settings: cli.Settings = None,
    seeds: cli.Seeds = "",
    only: cli.Only = "",
    quick: Annotated[
        bool, cli.flag("quick", "A 5-minute test run: one seed, small models; its figures mean nothing.")
    ] = False,
    minutes: Annotated[
        float,
        typer.Option(min=0, help="Do as many updates as fit into this time.", show_default="all"),
    ] = 0.0,
    jobs: cli.Jobs = "",
    slurm: cli.Slurm = "",
    out: Annotated[Path | None, typer.Option(help="Output folder [default: runs/<config>].")] = None,
    time_again: Annotated[
        bool, cli.flag("time-again", "Time all models again, for example after a disturbed timing.")
    ] = False,
    track: Annotated[str, typer.Option(help="Also send the metrics to tensorboard or wandb.")] = "",
    dry_run: cli.DryRun = False,
    list_experiments: cli.ListExperiments = False,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Train, decode, score and time all models; the same command resumes.

    Finished runs stay as they are; a stopped run continues from its last saved state. The table shows all
    runs of the folder. With --only, the table and the exit status cover these models alone. --dry-run checks
    settings and data, and estimates sizes and times. Under torchrun, several processes train each model
    together.

    Example: attnbench run multi30k --set data.root=FOLDER
    """
    from compare.experiment.shorten import QUICK, QUICK_MINUTES, fit_minutes, quick_experiment
    from compare.report.screen import show_closing, show_experiment
    from compare.results.store import read_results

    asked = settings or []
    experiment = compare.load_experiment(config, [*QUICK, *asked] if quick else asked)
    folder = out or Path("runs") / (experiment.name + "-quick" * quick)
    which: dict[str, Any] = {"seeds": cli.parse_numbers(seeds, "--seeds"), "only": cli.parse_list(only)}
    which["context"] = str(config)
    if quick:
        which["seeds"] = which["seeds"] or list(experiment.seeds[:1])
        experiment = quick_experiment(experiment, asked, str(config))
    if minutes or (quick and not any(setting.startswith("train.max_updates=") for setting in asked)):
        experiment = fit_minutes(experiment, folder, minutes or QUICK_MINUTES, longer=bool(minutes), **which)
    if quick or minutes:
        logger.info(f"{experiment.train.max_updates:,} updates")
    options = {"launch": compare.parse_launch(jobs, slurm), **which}
    reporter = compare.TrackingReporter(folder, track) if track else Reporter()
    if dry_run:
        if is_main_process():
            estimates = compare.estimate_experiment(experiment, folder, **options)
            cli.show(estimates, _describe_estimates(estimates), as_json=as_json)
        return 0
    results = compare.run_experiment(experiment, folder, reporter, **options, time_again=time_again)
    if not is_main_process():
        return 0
    shown = results if only else read_results(folder)
    compare.write_views(folder)
    if as_json:
        cli.print_visible(compare.render_table(shown, "json"), end="")
    else:
        labels = {result.label for result in shown}
        text = show_experiment(folder, width=terminal_width(), only=labels, closing=True)
        cli.print_visible(text, end="", flush=True)
        if any(result.status == "done" and not result.is_external for result in shown):
            cli.print_visible(show_closing(folder, labels), end="", flush=True)
    return 0 if all(result.status == "done" for result in results) else 1


def _describe_estimates(estimates: Sequence["RunEstimate"]) -> str:
    rows = [
        {
            "run": estimate.name,
            "status": estimate.status,
            "params (M)": f"{estimate.params / 1e6:,.2f}",
            "memory (GB)": format_number(estimate.memory_bytes / 1e9, 2),
            "updates": f"{estimate.updates:,}",
            "updates left": f"{estimate.updates_left:,}",
            "training": UNKNOWN if estimate.train_s is None else format_duration(estimate.train_s),
        }
        for estimate in estimates
    ]
    total = _total_seconds(estimates)
    timing = sum({estimate.name.rpartition("-")[0]: estimate.timing_s for estimate in estimates}.values())
    conditions = [
        "memory: for weights, gradients and optimizer; activations need more",
        "training: estimated from a few updates of each model on this machine, one run after the other. "
        "Validation, translation of the test sets and timing take more: timing at least "
        f"{format_duration(timing)} (bench.seconds)"
        if total is not None
        else "training: unknown, because the device is missing or a model is too large for it",
    ]
    changes = {estimate.name.rpartition("-seed")[0]: estimate.budget_changes for estimate in estimates}
    conditions[:0] = [f"changed by the budget: {label}: {text}" for label, text in changes.items() if text]
    if total is not None:
        shorter = (
            "; to shorten it: --minutes 60, or --quick for a test run of 5 minutes" if total > 600 else ""
        )
        conditions.insert(0, f"all runs: about {format_duration(total)} of training{shorter}")
    return draw(listing(rows, {"run", "status"}, conditions=conditions), terminal_width()).rstrip("\n")


def _total_seconds(estimates: Sequence["RunEstimate"]) -> float | None:
    seconds = [estimate.train_s for estimate in estimates]
    return None if None in seconds else sum(filter(None, seconds))


@cli.app.command(cls=cli.Command)
def tune(
    config: cli.Config,
    trials: Annotated[int, typer.Option(help="Trials per model.")] = 20,
    updates: Annotated[int, typer.Option(help="Updates per trial.", show_default="train.max_updates")] = 0,
    space: Annotated[
        list[str] | None,
        typer.Option(help="Range or list to draw from: name=low:high or name=a,b. May be repeated."),
    ] = None,
    by: Annotated[Literal["bleu", "loss"], typer.Option(help="Criterion on the validation set.")] = "bleu",
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 1,
    seeds: cli.Seeds = "",
    settings: cli.Settings = None,
    only: cli.Only = "",
    jobs: cli.Jobs = "",
    slurm: cli.Slurm = "",
    out: Annotated[Path | None, typer.Option(help="Output folder [default: runs/tune/<config>].")] = None,
    dry_run: cli.DryRun = False,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Search learning rates and dropouts, equally for all models.

    Every model gets the same random draws, trials and updates. The mean over seeds of the validation BLEU
    decides, or with --by loss that of the loss. The loss also decides if a model's BLEU is below 1. The
    folder receives the trials and best.toml, the experiment with the best settings. The same command resumes.

    Example: attnbench tune demo --trials 20 --space learning_rate=1e-3:3e-2
    """
    from compare.experiment.tune import summarize

    plan = compare.TuningPlan(
        trials=trials,
        updates=updates,
        seed=seed,
        seeds=cli.parse_numbers(seeds, "--seeds"),
        space=compare.parse_space(space or []),
        by=by,
        only=cli.parse_list(only),
    )
    experiment, context = compare.load_experiment(config, settings or []), str(config)
    folder = out or Path("runs/tune") / experiment.name
    launch = compare.parse_launch(jobs, slurm)
    if dry_run:
        candidates, draws = compare.draw_candidates(experiment, plan, context)
        firsts = [label for label, draw in draws.items() if draw["trial"] == 1]  # the others take as long
        others = draws.keys() - firsts
        models = tuple(model for model in candidates.models if model.label not in others)
        estimates = compare.estimate_experiment(
            replace(candidates, models=models),
            folder,
            seeds=plan.seeds or (experiment.train.seed,),
            only=firsts,
            context=context,
            launch=launch,
            tests=False,
        )
        rows = list(draws.values())
        seconds = _total_seconds(estimates)
        runs = f"{len(estimates) * trials} trials of {candidates.train.max_updates:,} updates"
        cost = "" if seconds is None else f": about {format_duration(trials * seconds)} of training"
        cli.show(rows, f"{table_text(rows, width=terminal_width())}\n\n{runs}{cost}", as_json=as_json)
        return 0
    tuning = compare.tune_experiment(experiment, folder, plan, Reporter(), context=context, launch=launch)
    rows = summarize(tuning.trials)
    headed = [{key.replace("_", " "): value for key, value in row.items()} for row in rows]
    cli.print_visible(json.dumps(rows) if as_json else table_text(headed, width=terminal_width()))
    if tuning.missing:
        logger.warning(
            f"{tuning.missing} trials have not ended: run the same command again when no other process works "
            "on them"
        )
    elif tuning.best is None:
        last = next(trial for trial in reversed(tuning.trials) if trial.status != "done")
        remedy = (
            "draw from another range with --space"
            if last.status == "failed"
            else "run the same command again"
        )
        logger.error(f"no best.toml: all trials of a model failed ({last.label}: {last.reason}): {remedy}")
    else:
        logger.info(f"written to {tuning.best}")
    return 0 if tuning.best else 1


@cli.app.command(cls=cli.Command)
def bench(
    config: cli.Config,
    settings: cli.Settings = None,
    phase: Annotated[str, typer.Option(help="Some of train,greedy,beam,latency.")] = "train,greedy,beam",
    updates: Annotated[int, typer.Option(min=1, help="Training batches per repeat.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repeats; the models take turns.")] = 3,
    batch: Annotated[
        str, typer.Option(help="Sentences decoded together [default: 64, on a GPU 1,32,256].")
    ] = "",
    steps: Annotated[int, typer.Option(min=1, help="Tokens of each hypothesis; all have this length.")] = 20,
    synthetic: Annotated[
        float | None, typer.Option(min=1, help="Use random ids, with this mean sentence length.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.")] = None,
    dry_run: cli.DryRun = False,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Time training and decoding of all models.

    The weights are fresh, and decoding has a fixed length, so that every model does equal work. --dry-run
    lists the timings.

    Example: attnbench bench configs/speed.toml --set data.root=multi30k --out speed.json
    """
    from compare.benchmark import Phase
    from data.files import write_atomically

    plan = compare.BenchPlan(
        phases=convert_setting(cli.parse_list(phase) or [""], tuple[Phase, ...], "--phase"),
        updates=updates,
        repeats=repeats,
        batches=tuple(cli.parse_numbers(batch, "--batch", least=1)),
        steps=steps,
        synthetic=synthetic,
    )
    cli.ensure_suffix(out, ".json")
    runs = compare.resolve_models(compare.load_experiment(config, settings or []), str(config))
    if dry_run:
        names = compare.planned_timings(runs, plan)
        cli.show(names, "\n".join(names), as_json=as_json)
        return 0
    results = compare.run_benchmark(runs, plan)
    if out is not None:
        write_atomically(out, results.to_json())
    cli.print_visible(results.to_json() if as_json else results.render(terminal_width()), end="")
    return 0


@cli.app.command(cls=cli.Command)
def study(
    name: Annotated[str | None, typer.Argument(help="The study to run [default: list all].")] = None,
    list_studies: cli.ListAll = False,
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("runs/studies"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="A finished experiment to read instead of training.")
    ] = None,
    corpus: cli.CorpusFolder = "",
    quick: Annotated[
        bool, cli.flag("quick", "Small sizes, for a test run; its figures mean nothing.")
    ] = False,
    plugin: cli.PluginModules = None,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Test a claim of the literature by measurement.

    Prints a verdict for each claim; writes these, a picture, tables and the method as study.md.

    Example: attnbench study scaling
    """
    from compare.studies.study import render_studies

    if name is None or list_studies:
        cli.print_visible(render_studies(as_json=as_json))
        return 0
    report = compare.run_study(name, out, seed=seed, quick=quick, runs=runs, data_root=corpus)
    cli.print_visible(report.to_json() if as_json else report.summary(out / name, terminal_width()), end="")
    return 0
