"""Several commands of ``attnbench``, each in a process forked from one that has imported what they need.

What ``python -m compare`` does before and after ``main`` is left out.

    python -m tests.kits.forked < STEPS

STEPS is a JSON list: an ``attnbench`` command is a list of its arguments, a text is one for the shell, which
has to succeed. It prints a JSON list of (exit status, standard error) of the ``attnbench`` commands.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

IMPORTED = (
    "compare.cli compare.experiment.run compare.report.html compare.report.plots compare.report.table "
    "data.prepare torch._dynamo sacrebleu matplotlib.backends.backend_svg PIL.PngImagePlugin"
)
"""Modules that commands import when they need them."""


def attnbench(arguments: Sequence[str], prepare: Callable[[], object] = lambda: None) -> tuple[int, str]:
    """Run a command in a fork; returns its exit status and standard error.

    Args:
        arguments: of the command.
        prepare: called in the fork before it.
    """
    with tempfile.TemporaryFile() as errors:
        if (pid := os.fork()) == 0:
            status = 70
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(errors.fileno(), 2)
                prepare()
                status = import_module("compare.cli").main(list(arguments))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        return status, errors.read().decode()


def main() -> None:
    for name in IMPORTED.split():
        import_module(name)
    answers = []
    for step in json.load(sys.stdin):
        if isinstance(step, str):
            subprocess.run(step, shell=True, check=True)
        else:
            answers.append(attnbench(step))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
