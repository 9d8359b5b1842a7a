"""Commands that go on from finished runs, and studies: converge, extend, study, ensemble."""

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import (
    AsJson,
    CorpusFolder,
    PluginModules,
    Quiet,
    app,
    corpus_folder,
    load_all_plugins,
    print_visible,
)
from compare.cli.training import choose_launcher

logger = logging.getLogger(__name__)


@app.command()
def converge(
    folder: Annotated[Path, typer.Argument(help="A finished experiment.")],
    factor: Annotated[float, typer.Option(help="Train with this many times the updates.")] = 1.5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs; train nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Measure what longer training would gain.

    The lowest seed of each model is trained again with more updates, in FOLDER/longer, and compared on the
    validation set; no test set is decoded. Tables and report then tell which models were still improving
    when they stopped. The same command again continues.

    Example: attnbench converge runs/demo
    """
    from compare.experiment.converge import measure_convergence, plan_convergence
    from compare.report.convergence import render_convergence
    from compare.report.views import refresh_views
    from compare.system.log import show_messages
    from compare.system.progress import Reporter

    show_messages(quiet=quiet)
    planned = plan_convergence(folder, factor=factor)
    if dry_run:
        names = [run.name for run in planned]
        print_visible(json.dumps(names) if as_json else "\n".join(names))
        return 0
    measured = measure_convergence(folder, Reporter(quiet=quiet), factor=factor)
    refresh_views(folder)
    print_visible(render_convergence(measured, as_json=as_json), flush=True)
    return 0 if len(measured) == len(planned) else 1


@app.command()
def extend(
    folder: Annotated[Path, typer.Argument(help="A finished experiment.")],
    updates: Annotated[int, typer.Option(help="Updates of the whole training, more than so far.")],
    jobs: Annotated[
        str, typer.Option(help="Runs at a time: a number, or auto: one per GPU, or per two cores.")
    ] = "1",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs; train nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Train all runs of an experiment further.

    The rows become those of the longer budget: what was made from the former last weights is removed, and
    made again. Runs are refused whose learning rate depended on the number of updates (linear, cosine). The
    same command again continues.

    Example: attnbench extend runs/mine --updates 8000
    """
    from compare.experiment.extend import extend_experiment, plan_extension
    from compare.report.tables.table import render_table
    from compare.report.views import write_views
    from compare.system.log import show_messages
    from compare.system.progress import Reporter

    show_messages(quiet=quiet)
    launcher = choose_launcher(jobs, "")
    if dry_run:
        names = [run.name for run in plan_extension(folder, updates)]
        print_visible(json.dumps(names) if as_json else "\n".join(names))
        return 0
    results = extend_experiment(folder, updates, Reporter(quiet=quiet), launcher=launcher)
    print_visible(render_table(results, "json" if as_json else "markdown"), end="", flush=True)
    write_views(folder)
    return 0 if all(result.status == "done" for result in results) else 1


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study to run [default: list them].")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("runs/studies"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="A finished experiment to read instead of training.")
    ] = None,
    corpus: CorpusFolder = None,
    plugin: PluginModules = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Test a claim of the literature by measurement.

    Writes tables, a plot and a verdict for each claim. Without a name, lists the studies.

    Example: attnbench study scaling
    """
    from compare.studies import render_studies, run_study
    from compare.system.log import show_messages

    load_all_plugins(plugin)
    if name is None:
        print_visible(render_studies(as_json=as_json))
        return 0
    show_messages(quiet=quiet)
    report = run_study(name, out, seed=seed, runs=runs, data_root=corpus_folder(corpus))
    print_visible(report.to_json() if as_json else report.to_markdown(), end="")
    logger.info(f"written to {out / name}")
    return 0


@app.command()
def ensemble(
    folder: Annotated[Path, typer.Argument(help="An experiment folder.")],
    members: Annotated[
        list[str], typer.Argument(help="Names of runs, or of models: all their finished seeds.")
    ],
    name: Annotated[str, typer.Option(help="Name of the ensemble [default: the members].")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    corpus: CorpusFolder = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Translate the test sets with several runs together.

    Their probabilities are averaged. The figures stand in ensembles/NAME, with the hash of the members, and
    below the table of runs, in which an ensemble is no row.

    Example: attnbench ensemble runs/demo-seeds bahdanau
    """
    from compare.experiment.ensemble import run_ensemble
    from compare.report.tables.ensembles import render_ensembles
    from compare.system.cpu import tune_cpu
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    tune_cpu()
    root = corpus_folder(corpus)
    result = run_ensemble(folder, members, name=name, device=device, data_root=root)
    print_visible(result.to_json() if as_json else render_ensembles([result]), end="" if as_json else "\n")
    return 0
