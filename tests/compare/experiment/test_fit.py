"""fit: the pipeline of the commands, on sentence pairs in memory."""

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
    (starter,) = (tmp_path / "fit").glob("corpus-*/transformer.toml")
    head, table = starter.read_text().split("[[models]]\n")
    kept = [line for line in table.splitlines() if line.partition(" ")[0] not in SETTINGS]
    config = starter.with_name("same.toml")
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
    for pairs, changes in ((PAIRS[1:], {}), (PAIRS, {"test": 2}), (PAIRS, {"langs": ("fr", "en")})):
        with pytest.raises(
            ValueError, match="holds a model of other pairs than these, or of other languages"
        ):
            quick_fit(tmp_path / "fit", pairs, **changes)


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
    """Nothing was trained on what it prepared; a call with other pairs has a corpus of its own."""
    for pairs, changes in (([("a", "b")], {}), (PAIRS[:20], {"settings": {"d_modle": 8}}), (PAIRS, {})):
        with pytest.raises(ValueError, match=r"give at least 3|unknown key"):
            quick_fit(tmp_path, pairs, **{"overrides": ["train.updates=1"], **changes})
    made = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.toml")}
    assert len(made) == 2
    assert {path.name for path in tmp_path.iterdir()} - made <= {".lock"}
