"""The command line itself: its options, its exit statuses, its one line for a mistake."""

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
