"""The command that measures speed: bench."""

import json
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, Quiet, Settings, app, load_all_plugins, print_visible


@app.command()
def bench(
    config: Annotated[Path, typer.Argument(help="The experiment whose models are timed.")],
    settings: Settings = None,
    phase: Annotated[
        str, typer.Option(help="Phases to time, of train,greedy,beam,latency,encode.")
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be timed.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Time training and decoding of all models.

    The weights are fresh; decoding is forced to a fixed length, so that every model does equal work.

    Example: attnbench bench configs/speed.toml --set data.root=multi30k --out speed.json
    """
    from compare.benchmark.benchmark import planned_timings, run_benchmark
    from compare.benchmark.conditions import conditions
    from compare.benchmark.growth import Scaling
    from compare.benchmark.plan import PHASES, BenchPlan, parse_choices
    from compare.benchmark.report import BenchmarkResult, read_earlier
    from compare.benchmark.scaling import SIZES, measure_growth
    from compare.config.parse import load_experiment
    from compare.config.run import resolve_models
    from compare.system.log import show_messages
    from data.text.files import write_atomically

    phases = parse_choices("--phase", phase, PHASES)
    axes = parse_choices("--scaling", scaling, tuple(SIZES)) if scaling else ()
    plan = BenchPlan(
        phases=phases, updates=updates, repeats=repeats, batch=batch, steps=steps, synthetic=synthetic
    )
    if axes and against:
        raise ValueError("--against compares phases, but --scaling times no phase: leave out one of the two")
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    show_messages(quiet=quiet)
    load_all_plugins()
    runs = resolve_models(load_experiment(config, settings or []), str(config))
    names = planned_timings(runs, plan)
    earlier = read_earlier(against, conditions(runs[0], plan)) if against else []
    if dry_run:
        names = [f"{run.label} {axis}" for axis in axes for run in runs] or names
        print_visible(json.dumps(names) if as_json else "\n".join(names))
        return 0
    found: BenchmarkResult | Scaling
    if axes:
        sizes = {axis: SIZES[axis] for axis in axes}
        found = measure_growth(runs, sizes, repeats=repeats)
    else:
        found = run_benchmark(runs, plan, earlier=earlier)
    if out is not None:
        write_atomically(out, found.to_json())
    print_visible(found.to_json() if as_json else found.render(), end="")
    return 0
