"""The environments of users: each command there does what it does elsewhere, with at most one warning."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kits.common import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="file systems of Unix")]
MODULES = "json random pickle socket multiprocessing logging queue ast re data typer"
NO_LOCKS = """
import fcntl
def flock(*_): raise OSError(37, "no locks")
fcntl.flock = flock
"""
NO_FOLDER_SYNC = """
import os, stat
def fsync(descriptor, fsync=os.fsync):
    if stat.S_ISDIR(os.fstat(descriptor).st_mode): raise OSError(22, "no fsync of folders")
    fsync(descriptor)
os.fsync = fsync
"""
RC = "text.usetex: True\nfont.size: 90\nfigure.dpi: 7\nsavefig.bbox: standard\nlines.linewidth: 20\nimage.cmap: hot\n"


class Environment(NamedTuple):
    """Variables, files in the working directory, what Python runs when it starts, and the one warning."""

    variables: dict[str, str] = {}  # noqa: RUF012 (it is never changed)
    files: dict[str, str] = {}  # noqa: RUF012
    start: str = ""
    warning: str = ""


ENVIRONMENTS = {
    "notebook": Environment({"MPLBACKEND": "module://matplotlib_inline.backend_inline"}),
    "matplotlibrc": Environment(files={"matplotlibrc": RC}),
    "modules": Environment(
        files={f"{name}.py": f"raise SystemExit('{name}.py was executed')" for name in MODULES.split()}
    ),
    "no home": Environment({"HOME": "/proc/nobody"}),
    "ascii": Environment({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "no locks": Environment(start=NO_LOCKS, warning="has no locks"),
    "no folder sync": Environment(start=NO_FOLDER_SYNC, warning="cannot sync folders"),
}
UNSET = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "MPLBACKEND")


COMMANDS = (
    "run {config} --out out --jobs 2 --set train.max_updates=8 --set train.valid_every=4",
    "plot out attention -q --only luong --out out/plots/heads.svg",
    "check out -q",
)
Outcome = tuple[list[str], dict[str, bytes]]


def run_commands(folder: Path, config: Path, environment: Environment) -> Outcome:
    """Run commands in a new folder; returns their warnings and pictures."""
    work, started = folder / "work", folder / "started"
    for path, files in ((work, environment.files), (started, {"sitecustomize.py": environment.start})):
        path.mkdir(parents=True)
        for name, text in files.items():
            (path / name).write_text(text)
    variables = {name: value for name, value in os.environ.items() if name not in UNSET}
    variables |= {"PYTHONPATH": f"{started}:{ROOT}", "OMP_NUM_THREADS": "1", **environment.variables}
    errors = ""
    for command in COMMANDS:
        words = [sys.executable, "-m", "compare", *command.format(config=config).split()]
        done = subprocess.run(words, cwd=work, env=variables, capture_output=True, text=True, check=False)
        errors += done.stderr
        assert done.returncode == 0, errors + done.stdout
    assert "Traceback" not in errors
    warnings = [line for line in errors.splitlines() if line.startswith("warning")]
    return warnings, {path.name: path.read_bytes() for path in sorted(work.glob("out/plots/*.svg"))}


@pytest.fixture(scope="module")
def usual(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_commands(tmp_path_factory.mktemp("usual"), tiny_toml, Environment())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_commands_do_the_same_in_every_environment(
    name: str, tiny_toml: Path, usual: Outcome, tmp_path: Path
):
    environment, (usual_warnings, usual_pictures) = ENVIRONMENTS[name], usual
    warnings, pictures = run_commands(tmp_path, tiny_toml, environment)
    assert len(pictures) > 1
    assert pictures == usual_pictures
    further = [line for line in warnings if line not in usual_warnings]
    assert bool(further) == bool(environment.warning)
    assert all(environment.warning in line for line in further)
