"""fit: the pipeline of the commands, on sentence pairs in memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from compare import fit, load_results
from compare.cli import main
from compare.system.log import Reporter
from data.files import hash_file
from tests.kits.raw_data import made_up

PAIRS = made_up(60)
SETTINGS = {"d_model": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_size": 32}
QUICK = [
    "train.device=cpu",
    "train.batch_tokens=64",
    "train.max_updates=4",
    "train.valid_every=2",
    "decode.beam_size=1",
    "decode.max_ratio=0.1",
    "bench.sentences=1",
    "bench.repeats=1",
    "bench.updates=1",
    "bench.latency_sentences=1",
]


def quick_fit(folder: Path, pairs=PAIRS, **changes):
    options = {"settings": SETTINGS, "overrides": QUICK, "langs": ("de", "en")} | changes
    return fit(pairs, folder=folder, reporter=Reporter(quiet=True), **options)


@pytest.mark.usefixtures("without_plots")
def test_it_trains_as_the_commands_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    translator = quick_fit(tmp_path / "fit")
    run = tmp_path / "fit" / "transformer-seed1"
    assert translator.folder == run.resolve()
    (row,) = load_results(tmp_path / "fit").to_dict("records")
    assert (row["status"], row["updates"]) == ("done", 4)
    assert row["train_tokens_per_s"] > 0

    # the commands on the corpus that it made
    model = "".join(f"{key} = {value}\n" for key, value in SETTINGS.items())
    head, table = (tmp_path / "fit" / "corpus" / "transformer.toml").read_text().split("[[models]]\n")
    kept = [line for line in table.splitlines() if line.partition(" ")[0] not in SETTINGS]
    config = tmp_path / "fit" / "corpus" / "same.toml"
    config.write_text(f"{head}[[models]]\n" + "\n".join(kept) + f"\n{model}")
    settings = [word for each in QUICK for word in ("--set", each)]
    assert main(["run", str(config), "--out", str(tmp_path / "run"), "-q", *settings]) == 0
    weights = Path("transformer-seed1", "checkpoints", "final.safetensors")
    assert hash_file(tmp_path / "fit" / weights) == hash_file(tmp_path / "run" / weights)

    # called again it loads what is there; another preset joins it, other pairs are refused
    before = (run / "metrics.jsonl").stat().st_mtime_ns
    again = quick_fit(tmp_path / "fit")
    assert (run / "metrics.jsonl").stat().st_mtime_ns == before
    assert again.translate("a") == translator.translate("a")
    quick_fit(tmp_path / "fit", preset="lstm", settings={"embedding_size": 8, "hidden_size": 8})
    frame = load_results(tmp_path / "fit")
    assert list(frame["label"]) == ["transformer", "lstm"]
    assert frame["data_hash"].nunique() == frame["settings_hash"].nunique() == 1
    with pytest.raises(ValueError, match="holds other pairs than these: choose another folder"):
        quick_fit(tmp_path / "fit", PAIRS[1:])
    with pytest.raises(ValueError, match="has other languages or sizes of valid and test"):
        quick_fit(tmp_path / "fit", test=2)


@pytest.mark.parametrize(
    ("pairs", "changes", "message"),
    [
        ([("a", "b"), "cd"], {}, r"pairs\[1\] must be a source and its target, found 'cd'"),
        ([("a", "b", "c")], {}, r"pairs\[0\] must be a source and its target"),
        ([1, 2], {}, r"pairs\[0\] must be a source and its target, found 1"),
        ([("a", None)], {}, r"pairs\[0\] must be a source and its target, found \('a', None\)"),
        ([("a", "b")], {}, "give at least 3 different pairs"),
        ([], {}, "no pairs: give"),
        ([{"de": "a", "en": "b"}], {}, r"pairs\[0\] must be a source and its target, found {'de'"),
        (PAIRS, {"preset": "transfomer"}, "unknown preset 'transfomer'; did you mean 'transformer'"),
        (PAIRS, {"settings": {"d_modle": 8}}, "unknown key 'd_modle'; did you mean 'd_model'"),
        (PAIRS, {"overrides": ["train.updates=1"]}, "unknown key 'train.updates'"),
    ],
)
def test_mistakes_are_one_line(pairs, changes: dict, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message) as caught:
        quick_fit(tmp_path / "fit", pairs, **changes)
    assert "\n" not in str(caught.value)


def test_a_mistaken_call_does_not_block_the_folder(tmp_path: Path):
    """Nothing was trained on what it prepared, so that the corrected call replaces it."""
    folder = tmp_path / "fit"
    for pairs, changes in (
        ([("a", "b")], {}),  # too few
        (PAIRS[:20], {"settings": {"d_modle": 8}}),
        (PAIRS, {"langs": ("src", "tgt"), "overrides": ["train.updates=1"]}),
    ):
        with pytest.raises(ValueError, match=r"give at least 3|unknown key"):
            quick_fit(folder, pairs, **changes)
    with pytest.raises(ValueError, match=r"unknown key 'train\.updates'"):  # reached with the right pairs
        quick_fit(folder, overrides=["train.updates=1"])
    assert len((folder / "pairs.jsonl").read_text().splitlines()) == 60
    assert {path.suffix for path in (folder / "corpus").glob("train.*")} == {".de", ".en"}

    (folder / "lstm-seed1").mkdir()
    (folder / "lstm-seed1" / "config.toml").touch()
    with pytest.raises(ValueError, match="holds other pairs than these: choose another folder"):
        quick_fit(folder, PAIRS[1:])
    with pytest.raises(ValueError, match="has other languages or sizes of valid and test"):
        quick_fit(folder, test=2)


def test_a_corpus_of_the_users_own_is_not_touched(tmp_path: Path):
    own = tmp_path / "corpus" / "train.de"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(ValueError, match="has other languages"):
        quick_fit(tmp_path)
    assert own.read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "train.de"])
def test_files_that_were_added_or_changed_are_kept(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="unknown key"):
        quick_fit(tmp_path, overrides=["train.updates=1"])
    path = tmp_path / "corpus" / name
    path.write_text("mine")
    with pytest.raises(ValueError, match="holds other pairs than these: choose another folder"):
        quick_fit(tmp_path, PAIRS[1:])
    with pytest.raises(ValueError, match="has other languages or sizes of valid and test"):
        quick_fit(tmp_path, test=2)
    assert path.read_text() == "mine"
    assert len(list((tmp_path / "corpus").glob("valid.*"))) == 2


def test_a_corpus_that_another_process_uses_is_kept(tmp_path: Path):
    with pytest.raises(ValueError, match="unknown key"):
        quick_fit(tmp_path, overrides=["train.updates=1"])
    hold = (
        "import sys, pathlib, compare.system.signals as locks\n"
        "with locks.lock_folder(pathlib.Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", hold, str(tmp_path / "corpus")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ValueError, match="holds other pairs than these"):
            quick_fit(tmp_path, PAIRS[1:])
        other.communicate()
    with pytest.raises(ValueError, match="unknown key"):  # the pairs replace those of before
        quick_fit(tmp_path, PAIRS[1:], overrides=["train.updates=1"])
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 59
