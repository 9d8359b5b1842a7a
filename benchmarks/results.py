"""List the published results with their commands and costs, or make one of them again."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import Any

from compare.report.render import table_text
from compare.results.store import read_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
PROGRAMS = {"attnbench": [sys.executable, "-m", "compare"], "python": [sys.executable]}
"""Programs of the commands, so that those of this environment are used."""
HEAD = """# Published results

Each folder is made by the commands below it, from the root of the repository; `make results NAME=demo` runs
them, with `CORPORA=FOLDER`, a folder of corpora, where they need `$CORPORA`. Minutes are on two CPU cores.
This page is written by `python benchmarks/results.py --write` from `results.toml`; `make results` prints it.
[The log](../benchmarks/LOG.md) has the scores of earlier results that these replaced.
"""


def read_list() -> dict[str, dict[str, Any]]:
    """Read results.toml: for each folder in results/ what it holds, its commands and their cost."""
    return tomllib.loads((RESULTS / "results.toml").read_text(encoding="utf-8"))


def render_list() -> str:
    """Return the list as Markdown."""
    return HEAD + "".join(_render(name, entry) for name, entry in read_list().items())


def _render(name: str, entry: dict[str, Any]) -> str:
    commands = "".join(f"{_wrap(command)}\n" for command in entry["commands"])
    cost = f"About {entry['minutes']} minutes{_describe(name)}."
    return f"\n## {name}\n\n{entry['about']}.\n{cost}\n\n{commands}{_list_studies(name)}"


def _wrap(command: str) -> str:
    """Indent a command, and break it as the shell allows where it is long."""
    width = {"width": 108, "initial_indent": "    ", "subsequent_indent": "        "}
    return " \\\n".join(textwrap.wrap(command, **width, break_long_words=False, break_on_hyphens=False))


def _describe(name: str) -> str:
    """Describe the runs in a folder; empty if it holds none."""
    folder = RESULTS / name
    if not (folder / "experiment.json").is_file():
        return ""
    results = read_results(folder)
    versions = dict.fromkeys(str(result.code_version) for result in results)
    texts = "with" if any(folder.glob("*/*.hyp.gz")) else "without"
    return f"; {len(results)} runs, made by code {', '.join(versions)}, {texts} translations"


def _list_studies(name: str) -> str:
    """List the verdicts of the studies in a folder, as a table; empty if it holds none."""
    rows = []
    for path in sorted((RESULTS / name).glob("*/study.json")):
        study = json.loads(path.read_text(encoding="utf-8"))
        verdicts = [
            claim.get("verdict", claim["holds"]) for claim in study["claims"]
        ]  # one seed has no verdict
        rows.append(
            {
                "study": f"[{study['name']}]({name}/{study['name']}/study.md)",
                "about": study["about"],
                "claims": len(verdicts),
                "hold": verdicts.count(True),
                "fail": verdicts.count(False),
                "undecided": verdicts.count("undecided"),
            }
        )
    return f"\n{table_text(rows)}\n" if rows else ""


def split(command: str) -> tuple[dict[str, str], str, list[str]]:
    """Split a command into the variables that it sets, its program and its arguments."""
    words = shlex.split(command)
    variables = list(takewhile(re.compile(r"[A-Z_]+=").match, words))
    program, *arguments = words[len(variables) :]
    return dict(word.split("=", 1) for word in variables), program, arguments


def make(name: str, corpora: str) -> int:
    """Run the commands of one entry until one fails; returns its exit status."""
    entries = read_list()
    if name not in entries:
        sys.exit(f"error: no results {name!r}: choose from {', '.join(entries)}")
    commands = entries[name]["commands"]
    if not corpora and any("$CORPORA" in command for command in commands):
        sys.exit(f"error: {name} needs corpora: give their folder with CORPORA=FOLDER")
    for command in commands:
        print(command, flush=True)
        variables, program, arguments = split(command)
        arguments = [Template(argument).substitute(CORPORA=corpora) for argument in arguments]
        done = subprocess.run(
            [*PROGRAMS.get(program, [program]), *arguments], cwd=ROOT, check=False, env=os.environ | variables
        )
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="an entry of results.toml [default: list them]")
    parser.add_argument("--corpora", default="", help="the folder of the corpora")
    parser.add_argument("--write", action="store_true", help="write results/README.md instead of printing")
    options = parser.parse_args()
    if options.name:
        sys.exit(make(options.name, options.corpora))
    if options.write:
        (RESULTS / "README.md").write_text(render_list(), encoding="utf-8")
    else:
        print(render_list(), end="")
