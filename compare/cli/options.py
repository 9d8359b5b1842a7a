"""The program, and the options that several commands share."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

import compare
from compare.system.log import show_messages
from compare.system.messages import nearest
from compare.system.processes import is_main_process, is_torchrun
from data.text import visible_lines

GROUPS = {
    "Start": ("data", "run", "table", "report", "plot", "translate"),
    "Research": ("models", "tune", "study", "score", "align", "bench"),
    "Share": ("check", "publish", "export"),
    "Machine": ("doctor",),
}


MEANT = {
    **dict.fromkeys(("train", "compare", "experiment"), "run"),
    "list": "run --list, models, data get --list or study",
    **dict.fromkeys(("test", "evaluate", "eval"), "score, or table for the results of an experiment"),
    **dict.fromkeys(("results", "show"), "table"),
    "benchmark": "bench",
    "prepare": "data prepare",
    **dict.fromkeys(("ensemble", "extend", "score-run", "score-model", "add-scores"), "score --help"),
    "converge": "run with train.budgets",
    "contrast": "study contrastive",
}
"""Names that people try, with the right command."""


class CommandGroup(TyperGroup):
    """The commands in groups."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; an error suggests what was probably meant."""
        name = args[0]
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        from compare.config import shipped_experiments

        meant = {**MEANT, **{shipped: f"run {shipped}" for shipped in shipped_experiments()}}
        if name in meant:
            raise ValueError(f"no command {name!r}: use attnbench {meant[name]}")
        near = nearest(name, [*self.commands, *meant], 0.6)
        hint = f"did you mean {meant.get(near, near)}?" if near else "attnbench --help lists them"
        raise ValueError(f"no command {name!r}; {hint}")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group."""
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(68)) for name in names])


class Command(TyperCommand):
    """A command whose help shows types as <path>... and <int>, and its example unbroken on a line."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = (self.help or "").replace("\n\nExample: ", "\n\n\b\nExample:\n  ")  # for copying

    def get_help(self, ctx: Any) -> str:
        """Return the help with its columns aligned."""

        def plain_type(match: re.Match[str]) -> str:
            name, repeated = match[1] or match[2], "..." * bool(match[1])
            return f"<{name.lower()}>{repeated}".ljust(len(match[0]))

        return re.sub(r"<list\[(\w+)\]>|<(\w+) range>", plain_type, super().get_help(ctx))


app = typer.Typer(
    cls=CommandGroup,
    name="attnbench",
    help="Compare recurrent attention with the Transformer in machine translation.",
    epilog="Example: attnbench run demo",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def flag(name: str, about: str, **more: Any) -> Any:
    """Declare an option that is on or off; without a name, typer would add --no-... to it."""
    return typer.Option(f"--{name}", help=about, **more)


def ensure_suffix(out: Path | None, suffix: str) -> None:
    """Raise ValueError if a file to write ends otherwise: it may be another file of the user's."""
    if out is not None and out.suffix != suffix:
        raise ValueError(f"--out {out}: name a file that ends with {suffix}")


def list_option(about: str, rows: Callable[[], Sequence[Mapping[str, Any]]]) -> Any:
    """Declare ``--list``, which prints rows and stops, whatever the arguments are."""

    def show_list(asked: bool) -> None:
        if asked:
            from compare.report.table_formats import list_text

            print_visible(list_text(rows()))
            raise typer.Exit

    return flag("list", about, callback=show_list, is_eager=True)


def _experiments() -> Sequence[Mapping[str, Any]]:
    from compare.config import describe_shipped

    return [{"experiment": name, "what it is": about} for name, about in describe_shipped().items()]


def _print_version(asked: bool) -> None:
    if asked:
        print_visible(f"attnbench {compare.__version__}")
        raise typer.Exit


def _show_messages(quiet: bool) -> bool:
    show_messages(quiet=quiet or not is_main_process())
    return quiet


def _load_plugins(named: list[str] | None) -> list[str] | None:
    compare.load_plugins(named or [])
    return named


def _corpus_folder(setting: str) -> str:
    """Return the FOLDER of ``data.root=FOLDER``, absolute; empty if there is none."""
    if not setting:
        return ""
    from compare.config.parse import absolute_root  # slow to import

    key, _, value = setting.partition("=")
    root = value.strip().strip("\"'")
    if key.strip() != "data.root" or not root:
        raise ValueError(
            f"--set {setting}: a finished experiment keeps its settings; --set can only name your "
            "copy of its corpus: data.root=FOLDER"
        )
    return absolute_root(root, Path())


Config = Annotated[Path, typer.Argument(help="The experiment: a TOML file, or a name of `run --list`.")]
ListExperiments = Annotated[bool, list_option("List the experiments that ship with attnbench.", _experiments)]
ListAll = Annotated[bool, flag("list", "List the names.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a setting: section.key=value or models.LABEL.key=value. May be repeated."
    ),
]
Seeds = Annotated[
    str,
    typer.Option(help="Train with each of these seeds, such as 1,2,3 [default: the config's]."),
]
Only = Annotated[
    str, typer.Option(help="These models only, such as lstm,bahdanau or 'lstm-*' [default: all].")
]
Jobs = Annotated[
    str,
    typer.Option(help="Number of processes that share the runs; auto: one per GPU, or per two cores."),
]
Slurm = Annotated[
    str, typer.Option(help="Share the runs among Slurm jobs: partition=NAME,gpus=1,time=60,mem=32.")
]
Folder = Annotated[Path, typer.Argument(help="An experiment folder.")]
Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs; several form an ensemble.")]
CorpusFolder = Annotated[
    str,
    typer.Option("--set", callback=_corpus_folder, help="data.root=FOLDER names your copy of the corpus."),
]
Device = Annotated[str, typer.Option(help="Where the runs compute: cpu or cuda.")]
DryRun = Annotated[bool, flag("dry-run", "Check everything and show what would be done; write nothing.")]
PluginModules = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        callback=_load_plugins,
        help="Module with your models (docs/own-model.md). May be repeated.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=_show_messages, help="Print results only.", is_eager=True)
]
AsJson = Annotated[bool, flag("json", "Print JSON.")]


def parse_list(text: str) -> list[str]:
    """Read a list of names that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_numbers(text: str, option: str, least: int = 0) -> list[int]:
    """Read a list such as "1,2,3" of an option."""
    parts = parse_list(text)
    numbers = [int(part) for part in parts if part.isdecimal() and int(part) >= least]
    if len({*numbers}) < len(parts):
        raise ValueError(f"{option} {text}: must be different whole numbers from {least} on, such as 1,2,3")
    return numbers


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, flag("version", "Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Compare recurrent attention with the Transformer in machine translation."""
    if is_torchrun() and context.invoked_subcommand != "run":
        raise ValueError(
            f"{context.invoked_subcommand} runs in one process: start it without torchrun, "
            "which is for `attnbench run`"
        )


def print_visible(text: object, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    r"""Print output or a message; control characters in it are shown as ``\x1b``, never obeyed."""
    print(visible_lines(str(text)), end=end, file=file, flush=flush)


def show(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result as JSON, from dataclasses or plain values, or the text that describes it."""
    from compare.results.store import json_text

    print_visible(json_text(value) if as_json else text)
