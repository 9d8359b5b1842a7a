"""The command line: each command parses, calls and prints; nothing heavy is imported before it is needed."""

# Importing a module adds its commands, in the order of --help.
from compare.cli import training  # noqa: F401  # isort: skip
from compare.cli import results, text, data  # noqa: F401  # isort: skip
from compare.cli.app import app, main

__all__ = ["app", "main"]
