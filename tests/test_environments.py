"""The environments of users: an experiment runs there as elsewhere, with at most one warning."""

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
RC = "text.usetex: True\nfont.size: 90\nfigure.dpi: 7\nlines.linewidth: 20\nsvg.fonttype: path\n"


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
    "variables": Environment(
        {
            **{"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "1", "PYTHONHASHSEED": "7"},
            **{"COLUMNS": "30", "TZ": "Pacific/Kiritimati"},
        }
    ),
    "ascii": Environment({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "no locks": Environment(start=NO_LOCKS, warning="has no locks"),
    "no folder sync": Environment(start=NO_FOLDER_SYNC, warning="cannot sync folders"),
}
UNSET = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "MPLBACKEND")
COMMAND = "run {config} --out out --only luong --seeds 1,2 --jobs 2 --set train.max_updates=6"


def warnings_of(folder: Path, config: Path, environment: Environment) -> set[str]:
    """Run an experiment in a new folder, which trains in two processes and draws; returns its warnings."""
    work, started = folder / "work", folder / "started"
    for path, files in ((work, environment.files), (started, {"sitecustomize.py": environment.start})):
        path.mkdir(parents=True)
        for name, text in files.items():
            (path / name).write_text(text)
    variables = {name: value for name, value in os.environ.items() if name not in UNSET}
    variables |= {"PYTHONPATH": f"{started}:{ROOT}", "OMP_NUM_THREADS": "1", **environment.variables}
    words = [sys.executable, "-m", "compare", *COMMAND.format(config=config).split()]
    if environment.start == NO_LOCKS:  # without locks, processes cannot share runs
        words[words.index("--jobs") + 1] = "1"
    done = subprocess.run(words, cwd=work, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert "this process" not in done.stderr  # otherwise another one could not start
    assert {path.stem for path in work.glob("out/plots/*.svg")} >= {"attention-luong-line1", "length"}
    return {line for line in done.stderr.splitlines() if line.startswith("warning")}


@pytest.fixture(scope="module")
def usual(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return warnings_of(tmp_path_factory.mktemp("usual"), tiny_toml, Environment())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_experiment_runs_in_every_environment(name: str, tiny_toml: Path, usual: set[str], tmp_path: Path):
    expected = ENVIRONMENTS[name].warning
    further = warnings_of(tmp_path, tiny_toml, ENVIRONMENTS[name]) - usual
    assert bool(further) == bool(expected) == any(expected in line for line in further)
