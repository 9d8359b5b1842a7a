"""The program without the modules, signals and file operations that Windows or macOS lacks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.cli import ROWS
from tests.kits.http_server import CONTENT, SHA256, Server, plain
from tests.kits.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="imitates other systems on Linux"),
]


def elsewhere(*arguments: str | Path) -> str:
    """Run Python in an imitation of another system; returns what it prints."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attnbench(*arguments: str | Path) -> str:
    return elsewhere("-m", "tests.kits.other_platform", *arguments)


IMITATION = "from tests.kits.other_platform import become_another_system; become_another_system();"


USES = {
    "exec('import fcntl', {'__name__': 'compare.somewhere'})": "ModuleNotFoundError",
    "exec('from resource import getrusage', {'__name__': 'data.somewhere'})": "ModuleNotFoundError",
    "os.open('.', os.O_RDONLY)": "PermissionError",
    "file = open(sys.executable); os.fsync(file.fileno())": "OSError",
    "file = open('a', 'w'); os.replace('a', 'b')": "PermissionError",
    "os.mkdir('c'); os.mkdir('d'); os.replace('c', 'd')": "PermissionError",
    "signal.SIGPIPE": "AttributeError",
    "os.sched_getaffinity(0)": "AttributeError",
    "import fcntl": "nothing",  # others than our packages
}


def test_the_imitation_lacks_what_it_should(tmp_path: Path):
    code = f"""
import os, signal, sys
{IMITATION}
os.chdir(sys.argv[1])
for use in sys.argv[2:]:
    try:
        exec(use)
        print("nothing")
    except Exception as error:
        print(type(error).__name__)
"""
    assert elsewhere("-c", code, tmp_path, *USES).split() == list(USES.values())


def test_presets_corpora_and_this_machine_are_described():
    assert "bahdanau" in attnbench("models")
    assert "multi30k" in attnbench("data", "list")
    assert "cores" in attnbench("doctor")


def test_an_experiment_runs(tiny_toml: Path, tmp_path: Path):
    out = ["--out", tmp_path / "run"]
    planned = json.loads(attnbench("run", tiny_toml, *out, "--dry-run", "--json"))
    assert [run["name"] for run in planned] == list(ROWS)
    assert not (tmp_path / "run").exists()
    attnbench("run", tiny_toml, *out, "--set", "train.max_updates=4", "--set", "train.valid_every=4")
    rows = json.loads(attnbench("table", tmp_path / "run", "--json"))
    assert [row["status"] for row in rows] == ["done", "done"]
    log = (tmp_path / "run" / ROWS[0] / "log.txt").read_text()
    assert "validation loss" in log


def test_a_corpus_is_prepared_where_an_empty_folder_is(tiny_toml: Path, tmp_path: Path):
    root, out = tiny_toml.parent / "corpus", tmp_path / "mine"
    out.mkdir()
    attnbench("data", "prepare", root / "train.en", root / "train.de", "--out", out)
    assert (out / "manifest.json").is_file()


def test_a_file_is_downloaded(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = (
        f"import sys, pathlib; {IMITATION}"
        "from data.download import Remote, download;"
        "download(Remote(name='f', mirrors=(sys.argv[1],), digest=sys.argv[2]), pathlib.Path(sys.argv[3]))"
    )
    monkeypatch.setenv("no_proxy", "*")
    elsewhere("-c", code, server.at("/f", plain), SHA256, tmp_path)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
