"""Training in whole experiments: equal batches for all rows, one experiment a folder, a failed row alone."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.cli import main
from compare.training.serialization import FINAL
from data.batches import BatchStream
from tests.kits.training import ROWS, make_stream, metrics

stream = pytest.fixture(scope="module")(make_stream)


def test_all_rows_of_an_experiment_train_on_the_same_batches(finished: Path):
    results = [json.loads((finished / row / "result.json").read_text()) for row in ROWS]
    assert len({result["batch_hash"] for result in results}) == 1
    assert len({result["data_hash"] for result in results}) == 1
    assert len({result["config_hash"] for result in results}) == 2
    assert {result["status"] for result in results} == {"done"}
    tokens = [
        [
            (line["src_tokens"], line["tgt_tokens"])
            for line in metrics(finished / row)
            if line["kind"] == "train"
        ]
        for row in ROWS
    ]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 90


def test_the_batch_hash_follows_seed_and_budget(stream: BatchStream):
    other = BatchStream(stream._split, batch_tokens=64, seed=2)
    assert stream.stream_hash() == BatchStream(stream._split, batch_tokens=64, seed=1).stream_hash()
    assert len({stream.stream_hash(), other.stream_hash(), stream.stream_hash(2)}) == 3


def test_a_finished_experiment_is_not_touched_again(finished: Path, run_tiny: Callable[..., Path]):
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in finished.rglob("*")}

    before = state()
    assert len(before) > 20
    run_tiny(finished)
    assert state() == before


@pytest.mark.parametrize(
    ("override", "key"),
    [("train.clip_norm=3", "clip_norm"), ("decode.beam_size=3", "beam_size"), ("data.src=fr", "src")],
)
def test_another_experiment_in_the_same_folder_is_refused(
    finished: Path, run_tiny: Callable[..., Path], override: str, key: str
):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(ValueError, match=f"holds another experiment .*{key} = ") as caught:
        run_tiny(finished, override)
    assert "\n" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_other_data_in_the_same_folder_is_refused(finished: Path, tiny_toml: Path, tmp_path: Path):
    """Another seed makes rows of other names, but the text and its hash must stay."""
    subprocess.run(["cp", "-r", finished, tmp_path / "run"], check=True)
    root = tmp_path / "corpus"
    subprocess.run(["cp", "-r", tiny_toml.parent / "corpus", root], check=True)
    (root / "valid.de").write_text((root / "valid.de").read_text().replace("Hund", "Wolf"))
    arguments = [
        "run",
        str(tiny_toml),
        "--out",
        str(tmp_path / "run"),
        "-q",
        "--set",
        f"data.root={root.as_posix()}",
    ]
    assert main(arguments) == 2  # the row's folder holds another root
    assert main([*arguments, "--set", "train.seed=2"]) == 2
    assert not (tmp_path / "run" / "luong-seed2").exists()


@pytest.mark.usefixtures("without_plots")
def test_a_row_that_diverges_fails_alone(tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = tiny_toml.read_text().replace("learning_rate = 1e-2", "learning_rate = 1e38")
    (path := tmp_path / "wild.toml").write_text(text)
    command = [
        "run",
        str(path),
        "--out",
        str(tmp_path / "run"),
        "-q",
        "--json",
        "--set",
        "train.max_updates=12",
    ]
    assert main(command) == 1
    failed, done = (json.loads((tmp_path / "run" / row / "result.json").read_text()) for row in ROWS)
    assert (failed["status"], done["status"]) == ("failed", "done")
    assert "NaN or infinite" in failed["reason"]
    assert "lower learning_rate (now 1e+38)" in failed["reason"]
    assert "\n" not in failed["reason"]
    assert "bleu" not in failed
    assert done["bleu"] >= 0
    assert not (tmp_path / "run" / ROWS[0] / "checkpoints" / FINAL).exists()
    assert capsys.readouterr().out
