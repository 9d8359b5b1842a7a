"""Run as a program by faults_kit: a list of steps in, as JSON; what its commands answered out.

Steps mount a tmpfs over the folder that is the argument, limit the size of files, copy, or run attnbench.
"""

import json
import resource
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from compare.cli import main


def attnbench(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Output of a command, and the incomplete files that it left."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main(arguments)
    broken = [str(path) for path in folder.rglob("*.tmp")]
    for path in [*folder.rglob("*.json"), *folder.rglob("metrics.jsonl")]:
        for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            json.loads(line)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "broken": broken}


def do(step: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    match step:
        case {"mount": options}:
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        case {"limit": size}:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size or hard, hard))
        case {"copy": [source, target]}:
            shutil.copytree(source, target)
        case {"attnbench": arguments}:
            return attnbench(arguments, folder)
    return None


if __name__ == "__main__":
    place = Path(sys.argv[1])
    answers = [do(step, place) for step in json.load(sys.stdin)]
    print(json.dumps([answer for answer in answers if answer is not None]))
