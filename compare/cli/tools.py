"""The commands bench, models, doctor and export."""

from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import (
    AsJson,
    Config,
    CorpusFolder,
    DryRun,
    PluginModules,
    Quiet,
    Settings,
    app,
    flag,
    load_all_plugins,
    print_visible,
    show,
)


@app.command()
def bench(
    config: Config,
    settings: Settings = None,
    phase: Annotated[
        str, typer.Option(help="Some of train,greedy,beam,latency,encode.")
    ] = "train,greedy,beam",
    updates: Annotated[int, typer.Option(min=1, help="Training batches per repeat.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repeats, the models taking turns.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Sentences decoded together.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Tokens of each hypothesis; its length is forced.")] = 20,
    synthetic: Annotated[
        float | None, typer.Option(min=1, help="Use random ids, with this mean sentence length.")
    ] = None,
    scaling: Annotated[
        str, typer.Option(help="Time growth instead, with length,batch,width,vocabulary.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Earlier result (file or folder) to compare with.")
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Time training and decoding of all models.

    The weights are fresh; decoding is forced to a fixed length, so that every model does equal work. With
    --dry-run, what would be timed is listed.

    Example: attnbench bench configs/speed.toml --set data.root=multi30k --out speed.json
    """
    from compare.benchmark.benchmark import SIZES, conditions, measure_growth, planned_timings, run_benchmark
    from compare.benchmark.candidate import PHASES, BenchPlan, parse_choices
    from compare.benchmark.measurement import BenchmarkResult, Scaling, read_earlier
    from compare.config.parse import load_experiment
    from compare.config.run import resolve_models
    from data.files import write_atomically

    phases = parse_choices("--phase", phase, PHASES)
    axes = parse_choices("--scaling", scaling, tuple(SIZES)) if scaling else ()
    plan = BenchPlan(
        phases=phases, updates=updates, repeats=repeats, batch=batch, steps=steps, synthetic=synthetic
    )
    if axes and against:
        raise ValueError("--against compares phases, but --scaling times no phase: leave out one of the two")
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    load_all_plugins()
    runs = resolve_models(load_experiment(config, settings or []), str(config))
    names = planned_timings(runs, plan)
    earlier = read_earlier(against, conditions(runs[0], plan)) if against else []
    if dry_run:
        names = [f"{run.label} {axis}" for axis in axes for run in runs] or names
        show(names, "\n".join(names), as_json=as_json)
        return 0
    found: BenchmarkResult | Scaling
    if axes:
        found = measure_growth(runs, {axis: SIZES[axis] for axis in axes}, repeats=repeats)
    else:
        found = run_benchmark(runs, plan, earlier=earlier)
    if out is not None:
        write_atomically(out, found.to_json())
    print_visible(found.to_json() if as_json else found.render(), end="")
    return 0


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Describe this preset.")] = None,
    vocabulary: Annotated[int, typer.Option(min=5, help="Entries of each side's vocabulary.")] = 8000,
    verify: Annotated[bool, flag("verify", "Check that the preset NAME does what a model must.")] = False,
    plugin: PluginModules = None,
    as_json: AsJson = False,
) -> int:
    """List the presets, or describe one.

    A description shows settings, departures from the paper, formulas, modules with their weights, and shapes.
    With --verify, the model is built small and run on a few sentences: step against forward, causality,
    padding, batch neighbours, beams, saved weights, FLOPs; the exit status is 1 if a check fails.

    Example: attnbench models luong-local-p
    """
    from compare.models.catalogue import catalogue_presets, describe_preset, render_description, render_list

    if name is None:
        if verify:
            raise ValueError(
                "--verify checks one preset: name it, such as attnbench models bahdanau --verify"
            )
        entries = catalogue_presets(vocabulary)
        show(entries, render_list(entries, vocabulary), as_json=as_json)
        return 0
    if verify:
        from compare.integrations.verify import render_verdicts, verify_preset

        verdicts = verify_preset(name)
        show(verdicts, render_verdicts(name, verdicts), as_json=as_json)
        return 0 if all(verdict.holds for verdict in verdicts) else 1
    found = describe_preset(name, vocabulary)
    show(found, render_description(found), as_json=as_json)
    return 0


@app.command()
def doctor(as_json: AsJson = False) -> int:
    """Describe this machine and name what is missing."""
    from compare.system.doctor import diagnose, render_diagnoses

    findings = diagnose()
    show(findings, render_diagnoses(findings), as_json=as_json)
    return 1 if any(item.level == "missing" for item in findings) else 0


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    lines: Annotated[int, typer.Option(min=0, help="Compare so many validation sentences; 0: all.")] = 0,
    corpus: CorpusFolder = "",
    as_json: AsJson = False,
) -> int:
    """Export a trained Transformer to CTranslate2, and compare its translations.

    The exported model translates the validation set by greedy search, and so does the run's own.

    Example: attnbench export runs/demo/transformer-seed1 --out exported
    """
    from compare.integrations.export import export_model

    found = export_model(run, out, lines=lines, data_root=corpus)
    text = f"{out}: {found.equal:,} of {found.lines:,} greedy translations equal those of {run}"
    show(found, text, as_json=as_json)
    return 0
