"""Commands that train and time: run, tune, bench, study."""

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from compare.cli.app import (
    AsJson,
    Config,
    CorpusFolder,
    DryRun,
    Jobs,
    ListAll,
    ListExperiments,
    Only,
    PluginModules,
    Quiet,
    Seeds,
    Settings,
    Slurm,
    app,
    flag,
    load_all_plugins,
    parse_list,
    parse_seeds,
    print_visible,
    show,
)

logger = logging.getLogger(__name__)


@app.command()
def run(
    config: Config,
    settings: Settings = None,
    seeds: Seeds = "",
    only: Only = "",
    jobs: Jobs = "",
    slurm: Slurm = "",
    out: Annotated[Path | None, typer.Option(help="Output folder [default: runs/<config>].")] = None,
    time_again: Annotated[
        bool, flag("time-again", "Time all models again, as after a disturbed timing.")
    ] = False,
    track: Annotated[str, typer.Option(help="Also send the metrics to tensorboard or wandb.")] = "",
    dry_run: DryRun = False,
    list_experiments: ListExperiments = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Train, decode, score and time all models; again to resume.

    Runs that have ended stay as they are; a run that was stopped continues from its last saved state. The
    table has all rows of the folder. With --only, table and exit status are of these models alone. With
    --dry-run, settings and data are checked, sizes and times estimated. Started by torchrun, several
    processes train each model together.

    Example: attnbench run multi30k --set data.root=FOLDER
    """
    from compare.config.parse import load_experiment
    from compare.experiment import run
    from compare.experiment.dry_run import estimate_experiment
    from compare.experiment.launch import parse_launch
    from compare.integrations.trackers import track_metrics
    from compare.report.closing import show_closing
    from compare.report.score_tables import render_estimates
    from compare.report.screen import show_experiment
    from compare.report.table import render_table
    from compare.report.views import write_views
    from compare.results.store import read_results
    from compare.results.text import terminal_width
    from compare.system.distributed import is_main_process
    from compare.system.log import Reporter

    load_all_plugins()
    experiment = load_experiment(config, settings or [])
    folder = out or Path("runs") / experiment.name
    options: dict[str, Any] = {"seeds": parse_seeds(seeds), "only": parse_list(only), "context": str(config)}
    options["launch"] = parse_launch(jobs, slurm)
    if dry_run:
        if is_main_process():
            estimates = estimate_experiment(experiment, folder, **options)
            show(estimates, render_estimates(estimates), as_json=as_json)
        return 0
    with track_metrics(folder, track) if track and is_main_process() else nullcontext():
        results = run.run_experiment(experiment, folder, Reporter(), **options, time_again=time_again)
    if not is_main_process():
        return 0
    shown = results if only else read_results(folder)
    write_views(folder)
    if as_json:
        print_visible(render_table(shown, "json"), end="")
    else:
        text = (folder / "table.md").read_text(encoding="utf-8")
        if (width := terminal_width()) is not None:
            labels = {result.label for result in shown}
            text = show_experiment(folder, width=width, only=labels, closing=not only)
        elif only:
            text = render_table(shown)
        print_visible(text, end="", flush=True)
        if not only and any(result.status == "done" for result in shown):
            print_visible(show_closing(folder), end="", flush=True)
    return 0 if all(result.status == "done" for result in results) else 1


@app.command()
def tune(
    config: Config,
    trials: Annotated[int, typer.Option(help="Trials per model.")] = 20,
    updates: Annotated[int, typer.Option(help="Updates per trial.", show_default="train.max_updates")] = 0,
    space: Annotated[
        list[str] | None,
        typer.Option(help="Range or list to draw from: name=low:high or name=a,b. May be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 1,
    seeds: Seeds = "",
    finalists: Annotated[
        int,
        typer.Option(
            help="Trials per model that get all seeds, the best with the first.",
            show_default="all",
        ),
    ] = 0,
    settings: Settings = None,
    only: Only = "",
    jobs: Jobs = "",
    slurm: Slurm = "",
    out: Annotated[Path | None, typer.Option(help="Output folder [default: runs/tune/<config>].")] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Search learning rates and dropouts, equally for all models.

    Every model gets the same random draws, trials and updates; the validation set decides, of several seeds
    by their mean. Writes the trials, each a run, and best.toml, the experiment with the best settings. Again
    to resume.

    Example: attnbench tune demo --trials 20 --space learning_rate=1e-3:3e-2
    """
    from compare.config.parse import load_experiment
    from compare.experiment.dry_run import dry_run as check_runs
    from compare.experiment.launch import parse_launch
    from compare.experiment.tune import TuningPlan, draw_candidates, parse_space, summarize, tune_experiment
    from compare.results.text import table_text, terminal_width
    from compare.system.log import Reporter

    load_all_plugins()
    plan = TuningPlan(
        trials=trials,
        updates=updates,
        seed=seed,
        seeds=parse_seeds(seeds),
        finalists=finalists,
        space=parse_space(space or []),
        only=parse_list(only),
    )
    experiment, context = load_experiment(config, settings or []), str(config)
    folder = out or Path("runs/tune") / experiment.name
    launch = parse_launch(jobs, slurm)
    if dry_run:
        drawn, draws = draw_candidates(experiment, plan, context)
        check_runs(drawn, folder, only=list(draws), context=context, launch=launch, tests=False)
        rows = [{"label": draw.label, "trial": draw.trial, **draw.settings} for draw in draws.values()]
        show(rows, table_text(rows, width=terminal_width()), as_json=as_json)
        return 0
    tuning = tune_experiment(experiment, folder, plan, Reporter(), context=context, launch=launch)
    rows = summarize(tuning.trials)
    headed = [{key.replace("_", " "): value for key, value in row.items()} for row in rows]
    print_visible(json.dumps(rows) if as_json else table_text(headed, width=terminal_width()))
    if tuning.missing:
        logger.warning(
            f"trials that have not ended: {tuning.missing}; the same command again finishes what no other "
            "process works on"
        )
    elif tuning.best is None:
        logger.error("no best.toml: all trials of a model failed; draw from another range with --space")
    else:
        logger.info(f"written to {tuning.best}")
    return 0 if tuning.best else 1


@app.command()
def bench(
    config: Config,
    settings: Settings = None,
    phase: Annotated[str, typer.Option(help="Some of train,greedy,beam,latency.")] = "train,greedy,beam",
    updates: Annotated[int, typer.Option(min=1, help="Training batches per repeat.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repeats, the models taking turns.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Sentences decoded together.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Tokens of each hypothesis; its length is forced.")] = 20,
    synthetic: Annotated[
        float | None, typer.Option(min=1, help="Use random ids, with this mean sentence length.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.")] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Time training and decoding of all models.

    The weights are fresh; decoding is forced to a fixed length, so that every model does equal work. With
    --dry-run, what would be timed is listed.

    Example: attnbench bench configs/speed.toml --set data.root=multi30k --out speed.json
    """
    from compare.benchmark import BenchPlan, parse_phases, planned_timings, run_benchmark
    from compare.config.parse import load_experiment
    from compare.config.run import resolve_models
    from compare.results.text import terminal_width
    from data.files import write_atomically

    plan = BenchPlan(
        phases=parse_phases(phase),
        updates=updates,
        repeats=repeats,
        batch=batch,
        steps=steps,
        synthetic=synthetic,
    )
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    load_all_plugins()
    runs = resolve_models(load_experiment(config, settings or []), str(config))
    if dry_run:
        names = planned_timings(runs, plan)
        show(names, "\n".join(names), as_json=as_json)
        return 0
    found = run_benchmark(runs, plan)
    if out is not None:
        write_atomically(out, found.to_json())
    print_visible(found.to_json() if as_json else found.render(terminal_width()), end="")
    return 0


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study to run [default: list them].")] = None,
    list_studies: ListAll = False,
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("runs/studies"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="A finished experiment to read instead of training.")
    ] = None,
    corpus: CorpusFolder = "",
    quick: Annotated[bool, flag("quick", "Small sizes, for a try; the figures mean nothing.")] = False,
    plugin: PluginModules = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Test a claim of the literature by measurement.

    Prints a verdict for each claim; writes these, a picture, tables and the method as study.md.

    Example: attnbench study scaling
    """
    from compare.results.text import terminal_width
    from compare.studies import render_studies, run_study

    if name is None or list_studies:
        print_visible(render_studies(as_json=as_json))
        return 0
    report = run_study(name, out, seed=seed, quick=quick, runs=runs, data_root=corpus)
    print_visible(report.to_json() if as_json else report.summary(out / name, terminal_width()), end="")
    return 0
