"""Saved models: loading one gives the translations of its run, and a damaged or hostile one is refused."""

import shutil
from pathlib import Path

import pytest
import torch

from compare import from_pretrained, load_ensemble, load_model, save_pretrained
from compare.cli import main
from compare.results.store import read_result
from compare.training.serialization import load_weights, model_weights, save_weights

LINES = ["red dog sees old cat", "", "small tree"]


@pytest.fixture(scope="module", params=["luong-seed1", "transformer-seed1"])
def run(finished: Path, request: pytest.FixtureRequest) -> Path:
    return finished / request.param


@pytest.fixture
def saved(finished: Path, tmp_path: Path) -> Path:
    return save_pretrained(finished / "luong-seed1", tmp_path / "saved")


def test_a_saved_model_is_the_model_of_its_run(run: Path, tmp_path: Path):
    original = load_model(run)
    loaded = from_pretrained(save_pretrained(original, tmp_path / "saved"))
    weights = model_weights(loaded.model)
    for name, weight in model_weights(original.model).items():
        assert torch.equal(weights[name], weight)
    assert loaded.penalty == original.penalty
    assert loaded.decode == original.decode
    assert loaded.translate(LINES) == original.translate(LINES)
    assert loaded.generate(LINES, n_best=2) == original.generate(LINES, n_best=2)
    assert loaded.folder == (tmp_path / "saved").resolve()


def test_it_holds_no_path_and_no_training_state(saved: Path, tiny_toml: Path):
    names = {path.name for path in saved.iterdir()}
    assert names == {
        "config.toml",
        "vocabulary.json",
        "model.safetensors",
        "selection.json",
        "result.json",
        "README.md",
    }
    texts = [(saved / name).read_text() for name in names - {"model.safetensors"}]
    assert not any(str(tiny_toml.parent) in text for text in texts)


def test_the_card_has_the_row_and_what_it_comes_from(saved: Path):
    card = (saved / "README.md").read_text()
    row = read_result(saved).flat()
    assert card.startswith("---\nlanguage: [en, de]\n")
    for part in (f"{row['bleu']:.1f}", row["bleu_signature"], row["data_hash"], row["code_version"]):
        assert part in card
    assert "| luong " in card


def test_saving_a_saved_model_again_changes_nothing(saved: Path, tmp_path: Path):
    again = save_pretrained(saved, tmp_path / "again")
    for path in saved.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_the_command_line_translates_with_it(
    saved: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    printed = []
    for folder in (saved, finished / "luong-seed1"):
        monkeypatch.setattr("compare.cli.text._sentences", lambda: iter(LINES))
        assert main(["translate", str(folder)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == len(LINES)


def test_nothing_is_overwritten_but_a_saved_model(saved: Path, finished: Path, tmp_path: Path):
    run = finished / "transformer-seed1"
    with pytest.raises(FileExistsError, match="holds something already"):
        save_pretrained(run, saved)
    save_pretrained(run, saved, replace=True)
    assert "transformer" in (saved / "README.md").read_text()
    (saved / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds more than a saved model: only a saved model can be replaced"):
        save_pretrained(run, saved, replace=True)


def test_what_is_not_a_finished_run_is_refused(copy: Path, tmp_path: Path):
    ensemble = load_ensemble([copy / "luong-seed1", copy / "transformer-seed1"])
    with pytest.raises(ValueError, match="not the model of one run"):
        save_pretrained(ensemble, tmp_path / "saved")
    shutil.rmtree(copy / "luong-seed1" / "checkpoints")
    with pytest.raises(ValueError, match="has no weights"):
        save_pretrained(copy / "luong-seed1", tmp_path / "saved")
    (copy / "transformer-seed1" / "result.json").unlink()
    with pytest.raises(ValueError, match="has not ended"):
        save_pretrained(copy / "transformer-seed1", tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_damaged_files_are_refused(saved: Path):
    weights = saved / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=r"not a readable safetensors file .*: save or download it again"):
        from_pretrained(saved)
    tensors = load_weights_of(content, weights)
    tensors["output.bias"] += 1
    save_weights(weights, tensors)
    with pytest.raises(ValueError, match="are not the weights of this run's result"):
        from_pretrained(saved)


def load_weights_of(content: bytes, path: Path) -> dict[str, torch.Tensor]:
    path.write_bytes(content)
    return load_weights(path)


def test_plugins_of_a_saved_model_are_not_imported(saved: Path):
    config = saved / "config.toml"
    config.write_text('plugins = ["antigravity"]\n' + config.read_text())
    with pytest.raises(ValueError, match=r"needs the plug-ins .*, whose code loading would run"):
        from_pretrained(saved)


def test_names_that_are_neither_folder_nor_id(tmp_path: Path):
    for name in ("nowhere", "a/b/c", "../x", str(tmp_path / "x")):
        with pytest.raises(ValueError, match="no such folder, and not the id of a model on the hub"):
            from_pretrained(name)
    with pytest.raises(ValueError, match="revision is for models on the hub"):
        from_pretrained(tmp_path, revision="main")
