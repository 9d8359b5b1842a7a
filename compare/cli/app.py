"""The command line: shared options, exit statuses, one-line error messages."""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from data.text import visible, visible_lines

GROUPS = {
    "Start": ("data", "run", "table", "report", "plot", "translate"),
    "Research": ("models", "tune", "study", "score", "align", "bench"),
    "Share": ("check", "publish", "export"),
    "Machine": ("doctor",),
}
"""The commands as ``--help`` shows them."""
TYPES = {"int": "number", "float": "number", "str": "text", "path": "path"}
"""What ``--help`` calls the types of options; typer says "int range" and "list[str]"."""


class CommandGroup(TyperGroup):
    """The commands in groups, their options with types in words."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group."""
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(68)) for name in names])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or a group of commands, whose options have the types of ``TYPES``."""
        command = super().get_command(ctx, cmd_name)
        for each in [command, *getattr(command, "commands", {}).values()] if command else []:
            for option in each.params:
                if option.param_type_name == "option" and not option.metavar:
                    words = re.findall(r"\w+", option.display_type(ctx))
                    option.metavar = next((f"<{TYPES[word]}>" for word in words if word in TYPES), None)
        return command


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


def list_option(about: str, rows: Callable[[], Sequence[Mapping[str, Any]]]) -> Any:
    """Declare ``--list``, which prints rows and stops, whatever the arguments are."""

    def show_list(asked: bool) -> None:
        if asked:
            from compare.results.text import list_text

            print_visible(list_text(rows()))
            raise typer.Exit

    return flag("list", about, callback=show_list, is_eager=True)


def _experiments() -> Sequence[Mapping[str, Any]]:
    from compare.config import describe_shipped

    return [{"experiment": name, "what it is": about} for name, about in describe_shipped().items()]


def _print_version(asked: bool) -> None:
    """Print the version and stop; called by typer for ``--version``."""
    if asked:
        from compare import __version__

        print_visible(f"attnbench {__version__}")
        raise typer.Exit


def _show_messages(quiet: bool) -> bool:
    """Show what the program says beside its results, in one process of a torchrun job."""
    from compare.system.distributed import is_main_process
    from compare.system.log import show_messages

    show_messages(quiet=quiet or not is_main_process())
    return quiet


def load_all_plugins(named: list[str] | None = None) -> list[str] | None:
    """Import the plug-ins that are installed, and those that ``--plugin`` names.

    Commands on finished runs need it not: their config.toml names the plug-ins that they depend on.

    Raises:
        ValueError: a module that ``--plugin`` names cannot be used.
    """
    from compare.system.plugins import load_installed_plugins, load_plugins

    load_installed_plugins()
    load_plugins(named or [])
    return named


def _corpus_folder(setting: str) -> str:
    """Return the FOLDER of ``data.root=FOLDER``, absolute; empty if there is none.

    Raises:
        ValueError: another setting, or an empty folder.
    """
    if not setting:
        return ""
    from compare.config.parse import absolute_root  # slow to import

    key, _, value = setting.partition("=")
    root = value.strip().strip("\"'")
    if key.strip() != "data.root" or not root:
        raise ValueError(
            f"--set {setting}: a finished experiment keeps its settings; only the folder of its corpus "
            "can be given: data.root=FOLDER"
        )
    return absolute_root(root, Path())


Config = Annotated[Path, typer.Argument(help="The experiment: a TOML file, or a name of `run --list`.")]
ListExperiments = Annotated[bool, list_option("List the experiments that ship with attnbench.", _experiments)]
ListAll = Annotated[bool, flag("list", "List what there is.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a setting: section.key=value or models.LABEL.key=value; repeatable."
    ),
]
Seeds = Annotated[
    str, typer.Option(help="Train with each of these seeds, such as 1,2,3 [default: train.seed].")
]
Only = Annotated[
    str, typer.Option(help="These models only, such as lstm,bahdanau or 'lstm-*' [default: all].")
]
Jobs = Annotated[
    str,
    typer.Option(help="Processes that share the runs: a number, or auto: one per GPU, or per two cores."),
]
Slurm = Annotated[
    str, typer.Option(help="Share the runs among jobs of a cluster: partition=NAME,gpus=1,time=60,mem=32.")
]
Folder = Annotated[Path, typer.Argument(help="An experiment folder.")]
Runs = Annotated[list[Path], typer.Argument(help="Folder of a finished run, or of several: their ensemble.")]
CorpusFolder = Annotated[
    str, typer.Option("--set", callback=_corpus_folder, help="data.root=FOLDER: your copy of the corpus.")
]
"""The only setting of a finished experiment that can be overridden."""
Device = Annotated[str, typer.Option(help="For runs: cpu or cuda.")]
DryRun = Annotated[bool, flag("dry-run", "Only check and show what would be done; write nothing.")]
PluginModules = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        callback=load_all_plugins,
        help="Import this module first (docs/plugins.md). May be repeated.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=_show_messages, help="Print results only.", is_eager=True)
]
AsJson = Annotated[bool, flag("json", "Print JSON.")]


def parse_list(text: str) -> list[str]:
    """Read a list of names that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_seeds(text: str) -> list[int]:
    """Read a list such as "1,2,3"."""
    seeds = parse_list(text)
    if not all(seed.isdecimal() for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds {text}: must be different whole numbers from 0 on, such as 1,2,3")
    return list(map(int, seeds))


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, flag("version", "Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Compare recurrent attention with the Transformer in machine translation."""
    from compare.system.distributed import is_torchrun

    if is_torchrun() and context.invoked_subcommand != "run":
        raise ValueError(
            f"{context.invoked_subcommand} works in one process: start it without torchrun, "
            "which trains the models of `run` in several"
        )


def print_visible(text: object, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    r"""Print output or a message; control characters in it are shown as ``\x1b``, never obeyed."""
    print(visible_lines(str(text)), end=end, file=file, flush=flush)


def show(found: Any, text: str, *, as_json: bool) -> None:
    """Print a result as JSON, from dataclasses or plain values, or the text that describes it."""
    from msgspec import to_builtins

    print_visible(json.dumps(to_builtins(found), indent=2, ensure_ascii=False) if as_json else text)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 (the user's mistake), 1 (failure) or 128 + signal."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the encoding of a terminal lacks
    from compare.system.log import hide_messages
    from compare.system.signals import Terminated, raise_on_signals

    try:
        with raise_on_signals():
            return _flushed(_run(arguments))
    except Terminated as stop:  # before the command has begun or after its end
        return stop.status
    finally:
        hide_messages()


def _run(arguments: list[str] | None) -> int:
    """Run a command; a failure is one line on standard error, printed by one process of a torchrun job."""
    from compare.system.distributed import is_main_process
    from compare.system.log import discard
    from compare.system.messages import first_line
    from compare.system.signals import Interrupted, Locked, Terminated

    def say(message: str) -> None:
        try:
            if is_main_process():
                print_visible(message, file=sys.stderr, flush=True)
        except OSError:
            discard(sys.stderr)

    try:
        status: Any = app(args=arguments, standalone_mode=False)
        return int(status or 0)
    except Interrupted as stop:
        say(f"{stop}; run the same command again to continue")
        return 128 + stop.signum
    except (KeyboardInterrupt, typer.Abort, Terminated) as stop:
        say("stopped; run the same command again to continue from the last saved state")
        return stop.status if isinstance(stop, Terminated) else 130
    except Locked as locked:
        say(f"error: {locked}: run the same command again when it has ended")
        return 2
    except (ValueError, OSError) as error:
        say(f"error: {_one_line(error)}")
        return 2
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own errors; their class differs between versions
            message = visible_lines(error.format_message())
            error.format_message = lambda: message
            error.show()  # type: ignore[attr-defined]
            return 2
        from compare.system.measure import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        say(f"error: not enough memory: {first_line(error)}")
        return 1


def _flushed(status: int) -> int:
    """Flush standard output; return ``status``, or an error status if that fails."""
    try:
        sys.stdout.flush()
        return status
    except OSError as error:
        from compare.system.log import discard

        discard(sys.stdout)
        if status or isinstance(error, BrokenPipeError):  # the reader closed the pipe: exit quietly
            return status or 1
        print_visible(f"error: {_one_line(error)}", file=sys.stderr)
        return 2


def _one_line(error: ValueError | OSError) -> str:
    """Return the message of an error in one line, with the file name if the system reports one."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "standard output: " if error.errno == errno.ENOSPC else ""  # our own files are named already
        text = f"{error.filename}: {error.strerror}" if error.filename else f"{place}{error.strerror}"
    return " ".join(map(visible, text.splitlines()))
