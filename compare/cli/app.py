"""The command line itself: its options, its exit statuses, its one line for a mistake."""

import codecs
import errno
import json
import os
import sys
from io import TextIOWrapper
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


SIGNS = {"–": "-", "±": "+/-", "×": "x"}
"""What our tables hold beyond ASCII, for a terminal without it."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 (the user's mistake), 1 (failure) or 128 + signal."""
    codecs.register_error(__name__, _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=__name__)
    from compare.system.log import hide_messages

    try:
        return _flushed(_run(arguments))
    finally:
        hide_messages()


def _run(arguments: list[str] | None) -> int:
    """Run a command and say in one line why it failed."""
    from compare.system.signals import Interrupted

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


def _flushed(status: int) -> int:
    """Write what print holds back; ``status``, or what it is where nobody can take the output."""
    try:
        sys.stdout.flush()
        return status
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries again as it ends
        if status or isinstance(error, BrokenPipeError):  # a reader that has left wants no message
            return status or 1
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 2


def _one_line(error: ValueError | OSError) -> str:
    """What went wrong, led by the file where the system speaks of one."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "standard output: " if error.errno == errno.ENOSPC else ""  # what we write names itself
        text = f"{error.filename}: {error.strerror}" if error.filename else f"{place}{error.strerror}"
    return " ".join(text.splitlines())


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands for the signs that a terminal cannot show: others like them, or JSON's escapes."""
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(SIGNS.get(sign, json.dumps(sign)[1:-1]) for sign in signs), error.end
