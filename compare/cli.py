"""The command line: each command parses, calls and prints; nothing heavy is imported before it is needed."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="attnbench",
    help="Compare recurrent attention with the Transformer in machine translation.",
    epilog="Example: attnbench run configs/demo.toml",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Folders = Annotated[list[Path], typer.Argument(help="Experiment folders, or folders of single runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting: section.key=value. May be repeated.")
]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="The experiment, a TOML file.")],
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Its folder [default: runs/<config>].")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, start nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Train, decode, score and time every model of an experiment; run again to go on.

    Example: attnbench run configs/multi30k.toml --set data.root=multi30k
    """
    from compare.parse import load_experiment
    from compare.progress import Reporter
    from compare.run import rehearse, run_experiment
    from compare.views.publish import publish
    from compare.views.table import render

    experiment = load_experiment(config, settings or [])
    folder = out or Path("runs") / experiment.name
    reporter = Reporter(quiet=quiet)
    if dry_run:
        rows = [row.name for row in rehearse(experiment, folder, reporter.say, str(config))]
        print(json.dumps(rows) if as_json else "\n".join(rows))
        return 0
    results = run_experiment(experiment, folder, reporter, str(config))
    print(render(results, "json" if as_json else "markdown"), end="", flush=True)
    publish(folder, reporter.say)
    return 0 if all(result.status == "done" for result in results) else 1


@app.command()
def table(
    folders: Folders,
    form: Annotated[str, typer.Option(help="markdown, csv or json.")] = "markdown",
    columns: Annotated[str | None, typer.Option(help="Columns to show, separated by commas.")] = None,
    as_json: AsJson = False,
) -> int:
    """Print the results of experiments as one table."""
    from compare.results import load_results
    from compare.views.table import render

    chosen = columns.split(",") if columns else None
    print(render(load_results(*folders), "json" if as_json else form, chosen), end="")
    return 0


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="An experiment folder.")],
    sentence: Annotated[str | None, typer.Option(help="Draw the attention weights of this sentence.")] = None,
    line: Annotated[int, typer.Option(help="Draw those of this line of the test set.")] = 1,
    quiet: Quiet = False,
) -> int:
    """Draw learning curves and attention heat-maps as PNG and SVG into the folder's plots/."""
    from compare.progress import Reporter
    from compare.views.publish import draw

    for path in draw(folder, sentence=sentence, line=line, say=Reporter(quiet=quiet).say):
        print(path)
    return 0


@app.command()
def bench(
    config: Annotated[Path, typer.Argument(help="The experiment whose models are timed.")],
    settings: Settings = None,
    updates: Annotated[int, typer.Option(min=1, help="Timed training updates a repeat.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats, the models taking turns.")] = 3,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Time the training of every model of an experiment, from fresh weights, the models taking turns.

    Example: attnbench bench configs/speed.toml --set data.root=multi30k
    """
    from compare.bench import bench_experiment, render
    from compare.parse import load_experiment
    from compare.progress import Reporter

    experiment = load_experiment(config, settings or [])
    say = Reporter(quiet=quiet).say
    report = bench_experiment(experiment, updates=updates, repeats=repeats, say=say, place=str(config))
    print(json.dumps(report, indent=2) if as_json else render(report))
    return 0


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size [default: the run's].")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> int:
    """Translate standard input, a sentence a line, with a trained model.

    Example: echo "The old woman sleeps." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.translate import load_model

    model = load_model(run, device)
    lines = [line.rstrip("\n") for line in sys.stdin]
    for translation in model.translate(lines, beam_size=beam):
        print(translation)
    return 0


@app.command()
def score(
    hypotheses: Annotated[Path, typer.Argument(help="Translations, detokenised, plain or .gz.")],
    ref: Annotated[Path, typer.Option(help="Reference translations, plain or .gz.")],
    ter: Annotated[bool, typer.Option("--ter", help="Compute TER too, which is slow.")] = False,
    as_json: AsJson = False,
) -> int:
    """Score translations against references: BLEU with its interval and signature, chrF."""
    from dataclasses import asdict

    from compare.score import score as compute
    from data.lines import read_lines

    result = compute(read_lines(hypotheses, allow_blank=True), read_lines(ref), ter=ter)
    print(json.dumps(asdict(result), indent=2) if as_json else str(result))
    return 0


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Take this preset apart.")] = None,
    vocabulary: Annotated[int, typer.Option(min=5, help="Entries of each side's vocabulary.")] = 8000,
    as_json: AsJson = False,
) -> int:
    """List the presets, what each is and costs; or show one's formulas, modules and shapes.

    Example: attnbench models luong-local-p
    """
    from dataclasses import asdict

    from compare.catalogue import catalogue, describe, render_description, render_list

    if name is not None:
        found = describe(name, vocabulary)
        print(json.dumps(found, indent=2) if as_json else render_description(found))
        return 0
    entries = catalogue(vocabulary)
    as_text = json.dumps([asdict(entry) for entry in entries], indent=2)
    print(as_text if as_json else render_list(entries, vocabulary))
    return 0


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study to run [default: list them].")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("runs/studies"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="A finished experiment to read instead of training (reversal).")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Set a claim of the lecture notes against a measurement: tables, a plot and a verdict.

    Example: attnbench study scaling
    """
    from compare.analysis.studies import list_studies, run_study
    from compare.progress import Reporter

    if name is None:
        print(list_studies(as_json=as_json))
        return 0
    reporter = Reporter(quiet=quiet)
    report = run_study(name, out, seed=seed, runs=runs, say=reporter.say)
    print(report.to_json() if as_json else report.to_markdown(), end="")
    reporter.say(f"written to {out / name}")
    return 0


@app.command()
def doctor(
    yardstick: Annotated[bool, typer.Option("--yardstick", help="Time matrix products, 2 s.")] = False,
    as_json: AsJson = False,
) -> int:
    """Say what this machine has for training, and what is missing."""
    from dataclasses import asdict

    from compare.doctor import diagnose, render

    findings = diagnose(yardstick=yardstick)
    print(json.dumps([asdict(item) for item in findings], indent=2) if as_json else render(findings))
    return 1 if any(item.level == "missing" for item in findings) else 0


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 (the user's mistake), 1 (failure) or 128 + signal."""
    from compare.interrupt import Interrupted

    try:
        status: Any = app(args=arguments, standalone_mode=False)
        return int(status or 0)
    except Interrupted as stop:
        print(f"{stop}; the same command goes on from there", file=sys.stderr)
        return 128 + stop.signum
    except (KeyboardInterrupt, typer.Abort):
        print("stopped; a run goes on from its last saved state when it is started again", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 2
    except Exception as error:
        show = getattr(error, "show", None)  # typer's own errors: a class that differs between its versions
        if show is None:
            raise
        show()
        return 2


def _one_line(error: ValueError | OSError) -> str:
    """What went wrong, led by the file where the system speaks of one."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.splitlines())
