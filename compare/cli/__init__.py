"""The command line: each command parses, calls and prints; nothing heavy is imported before it is needed."""

import errno
import os
import signal
import sys
from io import TextIOWrapper
from typing import Any

import typer

# Importing a module adds its commands.
from compare.cli import data, results, text, training  # noqa: F401
from compare.cli.options import app, print_visible
from compare.system.log import discard, hide_messages
from compare.system.messages import first_line, is_out_of_memory
from compare.system.processes import Interrupted, Terminated, is_main_process, raise_on_signals
from data.locks import Locked
from data.text import visible

__all__ = ["app", "main"]

INTERRUPTED = 128 + signal.SIGINT
"""Exit status of a command that Ctrl-C has ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 (the user's mistake), 1 (failure) or 128 + signal."""
    os.environ["MPLBACKEND"] = (
        "agg"  # commands show no windows; notebooks name a backend that may not be here
    )
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that the terminal cannot encode
    try:
        with raise_on_signals():
            return _flushed(_run(arguments))
    except Terminated as stop:  # before the command has begun or after its end
        return stop.status
    finally:
        hide_messages()


def _run(arguments: list[str] | None) -> int:
    """Run a command; a failure is one line on standard error, printed by one process of a torchrun job."""

    def say(message: str) -> None:
        try:
            if is_main_process():
                print_visible(message, file=sys.stderr, flush=True)
        except OSError:
            discard(sys.stderr)

    try:
        status: Any = app(args=arguments, standalone_mode=False)
        if status == INTERRUPTED:  # typer's status for Ctrl-C, which it prints nothing about
            raise KeyboardInterrupt
        return int(status or 0)
    except Interrupted as stop:
        say(f"{stop}; run the same command again to continue")
        return 128 + stop.signum
    except (KeyboardInterrupt, typer.Abort, Terminated) as stop:
        say("stopped; finished work is kept: run the same command again to do the rest")
        return stop.status if isinstance(stop, Terminated) else INTERRUPTED
    except Locked as locked:
        say(f"error: {locked}: run the same command again when that process has ended")
        return 2
    except (ValueError, OSError) as error:
        say(f"error: {_one_line(error)}")
        return 2
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own errors; their class differs between versions
            context = getattr(error, "ctx", None)
            help_page = f"; see {context.command_path} --help" if context else ""
            message = error.format_message().rstrip(".")
            say(
                message if "\n" in message else f"error: {message}{help_page}"
            )  # help: there were no arguments
            return 2
        if str(error).startswith("Symlink loop"):  # from pathlib, up to Python 3.12
            say(f"error: {first_line(error)}: remove the link, or name another folder")
            return 2
        if not is_out_of_memory(error):
            raise
        say(f"error: not enough memory: {first_line(error)}")
        return 1


def _flushed(status: int) -> int:
    """Flush standard output; return ``status``, or an error status on failure."""
    try:
        sys.stdout.flush()
        return status
    except OSError as error:
        discard(sys.stdout)
        if status or isinstance(error, BrokenPipeError):  # the reader closed the pipe: exit quietly
            return status or 1
        print_visible(f"error: {_one_line(error)}", file=sys.stderr)
        return 2


REMEDIES = {
    errno.ENOTDIR: ": a part of this path is a file; name another",
    errno.EACCES: ": change its permissions, or name another",
}
"""Remedies of the system's errors, by number."""


def _one_line(error: ValueError | OSError) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        prefix = "standard output: " if error.errno == errno.ENOSPC else ""  # our own files are named already
        message = f"{error.filename}: {error.strerror}" if error.filename else f"{prefix}{error.strerror}"
        message += REMEDIES.get(error.errno or 0, "")
    return " ".join(map(visible, message.splitlines()))
