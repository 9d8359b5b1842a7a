"""The command line: each command parses, calls and prints; nothing heavy is imported before it is needed."""

from compare.cli import experiments, bench, results, text, data, corpora, about  # isort: skip (the order of --help)
from compare.cli.app import app, main

__all__ = ["about", "app", "bench", "corpora", "data", "experiments", "main", "results", "text"]
