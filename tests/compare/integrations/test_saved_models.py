"""Saved models and the hub: the translations stay those of the run, and what cannot be loaded is one line."""

import shutil
import sys
from pathlib import Path
from unittest.mock import Mock, create_autospec

import pytest
import torch

from compare import from_pretrained, load_ensemble, load_model, push_to_hub, save_pretrained
from compare.integrations.hub import FILES
from compare.results.store import read_result
from compare.training.checkpoints import model_weights

LINES = ["red dog sees old cat", "", "small tree"]
NAME = "someone/luong-en-de"


@pytest.fixture
def saved(finished: Path, tmp_path: Path) -> Path:
    return save_pretrained(finished / "luong-seed1", tmp_path / "saved")


@pytest.mark.parametrize("run", ["luong-seed1", "transformer-seed1"])
def test_a_saved_model_is_the_model_of_its_run(finished: Path, run: str, tmp_path: Path):
    original = load_model(finished / run)
    loaded = from_pretrained(save_pretrained(original, tmp_path / "saved"))
    weights = model_weights(loaded.model)
    for name, weight in model_weights(original.model).items():
        assert torch.equal(weights[name], weight)
    assert (loaded.penalty, loaded.decode) == (original.penalty, original.decode)
    assert loaded.translate(LINES) == original.translate(LINES)
    assert loaded.generate(LINES, n_best=2) == original.generate(LINES, n_best=2)
    assert loaded.folder == (tmp_path / "saved").resolve()


def test_it_holds_no_path_and_no_training_state(saved: Path, tiny_toml: Path):
    names = {path.name for path in saved.iterdir()}
    assert names == {name for name in FILES if not name.endswith(".npy")}
    texts = [(saved / name).read_text() for name in names - {"model.safetensors"}]
    assert not any(str(tiny_toml.parent) in text for text in texts)


def test_the_card_has_the_row_and_what_it_comes_from(saved: Path):
    card = (saved / "README.md").read_text()
    row = read_result(saved).flat()
    assert card.startswith("---\nlanguage: [en, de]\nlibrary_name: attnbench\npipeline_tag: translation\n")
    for part in (f"{row['bleu']:.1f}", row["bleu_signature"], row["data_hash"], row["code_version"]):
        assert part in card
    assert "| luong " in card


def test_what_is_not_a_finished_run_is_refused(copy: Path, saved: Path, tmp_path: Path):
    with pytest.raises(FileExistsError, match="already exists"):
        save_pretrained(copy / "luong-seed1", saved)
    ensemble = load_ensemble([copy / "luong-seed1", copy / "transformer-seed1"])
    with pytest.raises(ValueError, match="was not loaded from one run"):
        save_pretrained(ensemble, tmp_path / "new")
    shutil.rmtree(copy / "luong-seed1" / "checkpoints")
    with pytest.raises(ValueError, match="has no weights"):
        save_pretrained(copy / "luong-seed1", tmp_path / "new")
    (copy / "transformer-seed1" / "result.json").unlink()
    with pytest.raises(ValueError, match="has not ended"):
        save_pretrained(copy / "transformer-seed1", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_damaged_weights_and_plug_ins_are_refused(saved: Path):
    weights, config = saved / "model.safetensors", saved / "config.toml"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"not a readable safetensors file .*: save or download it again"):
        from_pretrained(saved)
    config.write_text('plugins = ["antigravity"]\n' + config.read_text())
    with pytest.raises(ValueError, match=r"needs the plug-ins .*, whose code would be executed"):
        from_pretrained(saved)


# The hub: a stand-in with the signatures of huggingface_hub.


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """A module huggingface_hub whose uploads are folders below tmp_path."""
    real = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (extra hub)")
    module = Mock(
        snapshot_download=create_autospec(real.snapshot_download), HfApi=create_autospec(real.HfApi)
    )
    repos = tmp_path / "repos"

    def upload(*, folder_path: Path, repo_id: str, **options: object) -> None:
        shutil.copytree(folder_path, repos / repo_id)

    def download(repo_id: str, *, allow_patterns: list[str], **options: object) -> str:
        if not (repos / repo_id).is_dir():
            raise LookupError(f"Repository Not Found\nfor {repo_id}.")
        assert all((repos / repo_id / name).is_file() for name in ("config.toml", *allow_patterns[:2]))
        return str(repos / repo_id)

    module.HfApi.return_value.create_repo.return_value = f"https://hub/{NAME}"
    module.HfApi.return_value.upload_folder.side_effect = upload
    module.snapshot_download.side_effect = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return module


def test_up_and_down(hub: Mock, finished: Path):
    translator = load_model(finished / "luong-seed1")
    assert push_to_hub(translator, NAME, private=True) == f"https://hub/{NAME}"
    assert hub.HfApi.return_value.create_repo.call_args.kwargs["private"] is True
    assert from_pretrained(NAME, revision="main").translate(LINES) == translator.translate(LINES)
    assert hub.snapshot_download.call_args.kwargs["allow_patterns"] == list(FILES)  # and no pickle
    assert hub.snapshot_download.call_args.kwargs["revision"] == "main"


def test_what_fails_is_one_line(hub: Mock, finished: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        ValueError, match=r"a/b: LookupError: Repository Not Found for a/b\. .* `hf auth login`"
    ):
        from_pretrained("a/b")
    hub.HfApi.return_value.create_repo.side_effect = ConnectionError("no route")
    with pytest.raises(
        ValueError, match=rf"^{NAME}: ConnectionError: no route\. Check the name and the netw"
    ):
        push_to_hub(finished / "luong-seed1", NAME)
    for name in ("nowhere", "a/b/c", str(finished / "x")):
        with pytest.raises(ValueError, match="no such folder, and not an id of a model on the hub"):
            from_pretrained(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'attnbench\[hub\]'"):
        from_pretrained(NAME)
