"""A forger who makes hashes, figures and views of an experiment consistent again after each change."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compare.check.recompute import NOT_DERIVED
from compare.config.parse import load_experiment
from compare.experiment.compute_result import compute_figures
from compare.experiment.prepare import prepare_data
from compare.experiment.run import run_experiment, unfinished_result
from compare.report.views import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results, save_result
from compare.system.log import Reporter
from tests.conftest import write_corpus

TOML = """
[data]
root = "{root}"
max_test = 30

[vocabulary]
kind = "words"

[train]
device = "cpu"
precision = "fp32"
batch_tokens = 90
max_updates = 120
valid_every = 50
average = 2
log_every = 20
checkpoint_every = 50

[decode]
beam_size = 2

[bench]
sentences = 4
repeats = 2
latency_sentences = 2

[[models]]
preset = "luong-general"
label = "luong"
embedding_size = 16
hidden_size = 16
dropout = 0.1
learning_rate = 3e-2
warmup_updates = 5

[[models]]
preset = "lstm"
embedding_size = 16
hidden_size = 16
learning_rate = 3e-2
warmup_updates = 5
"""


def edit_text(path: Path, old: str, new: str) -> None:
    """Replace ``old``, which must be there, by ``new``."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    before = json.dumps(content)
    change(content)
    assert json.dumps(content) != before
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def edit_log(path: Path, change: Callable[[dict[str, Any]], object], *kinds: str) -> None:
    """Change every line of these kinds in a metrics.jsonl in place."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    before = json.dumps(lines)
    for line in lines:
        if line["kind"] in kinds:
            change(line)
    assert json.dumps(lines) != before
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def renew_hashes(folder: Path) -> None:
    """Write the hashes of all files that are there, and of the config, into every result of an experiment."""
    for record in sorted(folder.glob("*/result.json")):
        result = read_result(record.parent)
        if result.files:
            run = RunFolder.read(record.parent)
            found = {name: digest for name, digest in run.hashes().items() if name in result.files}
            files = {**result.files, **found}
            save_result(run.folder, replace(result, files=files, config_hash=run.config_hash))


def renew_figures(folder: Path) -> None:
    """Compute every result again from config, data and files, as an honest run would."""
    for record in sorted(folder.glob("*/result.json")):
        result, run = read_result(record.parent), RunFolder.read(record.parent)
        with TemporaryDirectory() as encoded:
            prepared = prepare_data(run.run, Path(encoded))
            begun = asdict(unfinished_result(run, prepared))
            known = {name: value for name, value in begun.items() if value and name not in NOT_DERIVED}
            figures = compute_figures(run, prepared)
        save_result(run.folder, replace(result, **known, **figures))


def renew_views(folder: Path) -> None:
    """Write results.jsonl and the tables again, if the results can be read."""
    with suppress(ValueError):
        results = read_results(folder)
        for name, text in render_views(results).items():
            (folder / name).write_text(text, encoding="utf-8")


def make_experiment(folder: Path) -> Path:
    """Run two models from two seeds each on a made-up corpus; returns the folder of the experiment."""
    root = write_corpus(folder / "corpus", {"train": 400, "valid": 40, "test": 40, "test_short": 6})
    (folder / "forged.toml").write_text(TOML.format(root=root.as_posix()))
    out = folder / "run"
    run_experiment(load_experiment(folder / "forged.toml"), out, Reporter(quiet=True), seeds=(1, 2))
    renew_views(out)
    return out
