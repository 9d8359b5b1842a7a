"""Models, scores, metrics and studies of plug-ins: loaded by every command, hashed, refused in one line."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.plugins import VERSIONS, code_version, load_plugins, source_version
from data.files import warn_once
from tests.kits.common import ROOT, Refusal
from tests.kits.plugins import EXAMPLE, importable

MODELS = """
[[models]]
preset = "conv-gru"
embedding_size = 16
hidden_size = 16

[[models]]
preset = "cosine-rnn"
embedding_size = 16
hidden_size = 16
"""
"""The two presets of the plug-in, small."""


def plugin_toml(tiny_toml: Path, plugins: str = '["attnbench_example"]', models: str = MODELS) -> str:
    """Return the tiny experiment with other models, and few updates."""
    head = tiny_toml.read_text().split("[[models]]")[0]
    for line, short in (("max_updates = 90", "max_updates = 6"), ("valid_every = 40", "valid_every = 3")):
        assert line in head
        head = head.replace(line, short)
    return f"plugins = {plugins}\n{head}{models}"


NAME = "attnbench_example"


@pytest.fixture(scope="module")
def plugin_run(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with both models of the template, trained for a few updates."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "e.toml").write_text(plugin_toml(tiny_toml))
    with importable(EXAMPLE):
        run_experiment(load_experiment(folder / "e.toml"), folder / "run")
    return folder / "run"


@pytest.fixture
def example() -> Iterator[None]:
    """The template is installed, and no command has loaded it yet."""
    with importable(EXAMPLE):
        yield


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder whose modules can be imported."""
    (tmp_path / "modules").mkdir()
    with importable(tmp_path / "modules"):
        yield tmp_path / "modules"


def test_a_row_names_the_plug_in_and_the_hash_of_its_source(plugin_run: Path, example: None):
    result = json.loads((plugin_run / "conv-gru-seed1" / "result.json").read_text())
    assert NAME not in sys.modules  # forgotten since the run
    load_plugins([NAME])
    assert result["code_version"] == code_version([NAME]) != source_version()
    assert result["code_version"].startswith(f"{source_version()} with {NAME} ")
    assert result["status"] == "done"
    assert 0 <= result["scores"]["repetition"] <= 100
    assert result["train_flops_per_token"] > 0
    run = RunFolder.read(plugin_run / "cosine-rnn-seed1").run
    assert run.plugins == (NAME,)
    assert run.to_toml() == (plugin_run / "cosine-rnn-seed1" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("translate RUNS/conv-gru-seed1", "\n"),
        ("table RUNS --columns all", "repeated |"),
        ("check RUNS --decode 2", " 0 differ"),
        ("study cosine-peak --plugin NAME --out OUT --quiet", "\nyes "),
        ("score OUT/hyp --ref OUT/hyp -m repetition --plugin NAME --json", '"repetition": 33.3'),
    ],
)
def test_commands_load_it(
    command: str,
    said: str,
    plugin_run: Path,
    example: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    (tmp_path / "hyp").write_text("a a b\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"the red dog\n"))))
    names = {"RUNS": str(plugin_run), "OUT": str(tmp_path), "NAME": NAME}
    for name, value in names.items():
        command = command.replace(name, value)
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert "made by code" not in printed


def test_check_says_that_the_plug_in_is_another_version(
    plugin_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(EXAMPLE / NAME, tmp_path / NAME)
    with (tmp_path / NAME / "cosine.py").open("a") as file:
        file.write("# edited\n")
    with importable(tmp_path):
        assert main(["check", str(plugin_run)]) == 0
    recorded = json.loads((plugin_run / "conv-gru-seed1" / "result.json").read_text())["code_version"]
    printed = " ".join(capsys.readouterr().out.split())
    made, checked = re.findall(r"made by code (.*?), checked by (.*?)(?= not checked:)", printed)[0]
    assert made == recorded
    assert checked.partition(" with ")[0] == made.partition(" with ")[0]
    assert checked != made


def test_a_missing_plug_in_is_named(plugin_run: Path, refusal: Refusal):
    config = plugin_run / "conv-gru-seed1" / "config.toml"
    for command in (["translate", config.parent], ["report", plugin_run, "-q"]):
        assert refusal(*command) == (
            f"{config}: plug-in '{NAME}' cannot be used: it is not installed here: "
            "install it, or put its folder on PYTHONPATH"
        )


def test_no_command_imports_what_lies_in_the_working_directory(tmp_path: Path):
    """A folder of results that somebody gave may have modules in it, which ``python -m`` would find."""
    for name in ("given", "torch"):
        (tmp_path / f"{name}.py").write_text("print('executed')")
    command = [sys.executable, "-m", "compare", "models", "--plugin", "given"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "install it, or put its folder on PYTHONPATH" in done.stderr


@pytest.fixture
def without_plugin(plugin_run: Path, tmp_path: Path) -> Path:
    """A copy of the experiment, where its plug-in is not installed."""
    warn_once.cache_clear()
    return Path(shutil.copytree(plugin_run, tmp_path / "copy"))


def test_without_the_plug_in_a_table_shows_the_stored_figures(
    without_plugin: Path, capsys: pytest.CaptureFixture[str]
):
    (without_plugin / "table.md").write_text("with the headings of the plug-in")
    assert main(["table", str(without_plugin), "--columns", "label,repetition"]) == 0
    shown = capsys.readouterr()
    assert shown.err == (
        f"warning: plug-in '{NAME}' cannot be used: it is not installed here: install it, or put its folder "
        "on PYTHONPATH; only the stored figures of single runs are shown\n"
    )
    for run in ("conv-gru", "cosine-rnn"):
        score = read_result(without_plugin / f"{run}-seed1").scores["repetition"]
        assert re.search(rf"{run} +\| +{score:,.6g} \|", shown.out)
    assert (without_plugin / "table.md").read_text() == "with the headings of the plug-in"


def test_without_the_plug_in_check_compares_the_hashes(
    without_plugin: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["check", str(without_plugin), "-q"]) == 0
    printed = capsys.readouterr().out
    assert f"not checked: anything but file hashes: plug-in '{NAME}' cannot" in printed
    assert printed.endswith(" 0 differ\n")
    (without_plugin / "conv-gru-seed1" / "test.hyp").write_text("forged\n")
    assert main(["check", str(without_plugin), "-q"]) == 1
    assert capsys.readouterr().out.startswith("conv-gru-seed1: test.hyp: recorded ")


PRESET = "from compare import Preset, register_preset\nfrom seq2seq.config import Seq2SeqConfig\n"
PRESET += "new = Preset(about='a', source='b', architecture=Seq2SeqConfig())\n"
FAMILY = """
from dataclasses import dataclass
from torch import nn
from compare import Family, Preset, register_family, register_preset

@dataclass(frozen=True, kw_only=True)
class Config:
    width: int = 8

class Model(nn.Module):
    def __init__(self, config, src, tgt):
        super().__init__()
        self.output = nn.Linear(config.width, tgt)
    forward = features = encode = init_state = step = attention = lambda self, *_: None

register_family(Family(name="mine", config=Config, build=Model, width_fields=("width",),
                       multiply_adds=lambda *_: 1))
register_preset("mine", Preset(about="a", source="b", architecture=Config()))
"""
SCORE = """from seq2seq import Score, register_score

class Mine(Score):
    def score(self, queries, keys):
        return keys.sum(-1)

register_score("mine", Mine)
"""
MINE, DOT = '[[models]]\npreset = "mine"\n', '[[models]]\npreset = "luong-dot"\nscore = "mine"\n'
UNUSABLE = "plug-in 'badly_made' cannot be used: "


@pytest.mark.parametrize(
    ("models", "message", "source"),
    [
        (MINE, f"{UNUSABLE}ModuleNotFoundError: No module named 'no_such'", "import no_such"),
        (MINE, "unknown preset 'mine'", "x = 1"),
        (
            MINE,
            f"{UNUSABLE}the preset 'lstm' exists already: choose another name",
            f"{PRESET}register_preset('mine', new)\nregister_preset('lstm', new)",
        ),
        (
            MINE,
            "Model of family 'mine' lacks step: see compare/protocol.py",
            FAMILY.replace("step =", "stepp ="),
        ),
        (
            MINE,
            "Model of family 'mine' lacks output: see compare/protocol.py",
            FAMILY.replace("output", "out"),
        ),
        (DOT, "badly_made.py:4: ValueError: Mine.score returns ", SCORE),
    ],
)
def test_a_plug_in_that_breaks_a_rule_is_refused_in_one_line(
    models: str, message: str, source: str, elsewhere: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    """Before training."""
    (elsewhere / "badly_made.py").write_text(source)
    path = tmp_path / "e.toml"
    path.write_text(plugin_toml(tiny_toml, '["badly_made"]', models))
    assert message in refusal("run", path, "--dry-run", "--quiet")


def test_a_score_that_imports_seq2seq_alone_is_known_in_a_new_process(tmp_path: Path):
    """As docs/own-model.md shows one; nothing else has imported the registries before."""
    (tmp_path / "mine.py").write_text(
        "from seq2seq import Score, register_score\n"
        "register_score('mine', type('Mine', (Score,), {'score': len}))\n"
    )
    program = "from compare import list_scores, load_plugins; load_plugins(['mine']); print(list_scores())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'mine'" in done.stdout, done.stderr


def test_a_plug_in_may_be_a_part_of_a_namespace(elsewhere: Path):
    (elsewhere / "space").mkdir()
    (elsewhere / "space" / "part.py").write_text(PRESET + "register_preset('mine', new)")
    load_plugins(["space.part"])
    assert re.match(r"space source\+\w+$", VERSIONS["space.part"])
