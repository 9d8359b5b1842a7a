"""Models exported to CTranslate2 translate as the run does; the recipes of docs/export.md work."""

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compare import export_model
from compare.cli import main
from compare.decoding.search import search
from compare.integrations.ctranslate2_model import Numbers, convert, translate_converted
from compare.integrations.export import distinct_pieces
from compare.models.registry import build
from data.corpus import Pairs
from data.vocabulary import EOS, SPECIALS, build_pair
from tests.kits.common import ROOT, Refusal
from tests.kits.contract import SPECIAL, V, sharpen, tiny
from tests.kits.texts import made_up
from transformer.config import TransformerConfig

PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary"}, "with positions = 'rotary': only 'sinusoidal' or 'learned'"),
        ({"norm": "none"}, "with norm = 'none'"),
        ({"num_kv_heads": 2}, "with num_kv_heads = 2"),
        ({"cross_mask": "window:3"}, "with cross_mask = 'window:3'"),
        ({"bias": False}, "with bias = False"),
        ({"projections": "shared-qk"}, "with projections = 'shared-qk'"),
    ],
)
def test_a_transformer_that_ctranslate2_does_not_have_is_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=f"CTranslate2 has no Transformers {message}.* can be exported"):
        Numbers.of(TransformerConfig(**settings))


def test_mistakes_are_one_line(
    finished: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
):
    run, out = finished / "transformer-seed1", tmp_path / "out"
    assert "only encoder-decoder Transformers can be exported" in refusal(
        "export", finished / "luong-seed1", "--out", out
    )
    assert "no config.toml" in refusal("export", finished, "--out", out)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert "pip install 'attnbench[export]'" in refusal("export", run, "--out", out)
    assert not out.exists()
    out.mkdir()
    (out / "mine").touch()
    assert "already exists" in refusal("export", run, "--out", out)


def test_pieces_are_distinct_where_labels_are_not():
    (vocabulary, _) = build_pair(Pairs(("a .", "a."), ("b", "b")), kind="words", size=20)
    pieces, labels = distinct_pieces(vocabulary), vocabulary.pieces(range(len(vocabulary)))
    assert len(pieces) == len(set(pieces)) == len(vocabulary) > len(set(labels))
    assert pieces[: len(SPECIALS)] == list(SPECIALS)


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "post", "activation": "gelu", "tie": "all", "positions": "learned"}]
)
def test_ctranslate2_searches_as_we_do(settings: dict, tmp_path: Path):
    """Random weights far from their start, on sentences of several lengths, with a unit in every part."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    config = replace(tiny("transformer").architecture, encoder_layers=1, decoder_layers=2, **settings)
    torch.manual_seed(0)
    model = build(config, V, V).eval()
    sharpen(model)
    pieces = [f"p{index}" for index in range(V)]
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    folder = tmp_path / "model"
    convert(arrays, Numbers.of(config), folder, pieces, pieces)
    rng = random.Random(3)
    sources = [rng.choices(range(4, V), k=rng.randint(1, 9)) for _ in range(30)]
    limits = [len(source) + 3 for source in sources]
    translations = translate_converted(folder, pieces, pieces, sources, limits)
    for source, longest, ids in zip(sources, limits, translations, strict=True):
        src = torch.tensor([[*source, EOS]])
        mask = torch.ones_like(src, dtype=torch.bool)
        (expected,) = search(model, src, mask, limits=torch.tensor([longest]), special=SPECIAL)
        assert ids == expected.tokens


def test_export_to_ctranslate2(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    run, out = finished / "transformer-seed1", tmp_path / "out"
    assert main(["export", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 8 of 8 greedy translations equal those of {run}\n"
    content = json.loads((out / "export.json").read_text())
    assert (content["lines"], content["equal"]) == (8, 8)
    assert (out / "model" / "model.bin").is_file()


# docs/export.md


def run_block(part: str, **names: object) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (block,) = (block for block in blocks if part in block)
    exec(compile(block, "docs/export.md", "exec"), names)


def test_a_hugging_face_dataset_becomes_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A column of translations, as a list of dicts; one text has a line feed."""
    monkeypatch.chdir(tmp_path)
    pairs = [(src, f"{tgt}\n.") for src, tgt in made_up(40)]
    dataset = {"translation": [{"en": src, "de": tgt} for src, tgt in pairs]}
    run_block("dataset", dataset=dataset, Path=Path)
    assert (tmp_path / "corpus.en").read_text().splitlines() == [src for src, _ in pairs]
    assert (tmp_path / "corpus.de").read_text().splitlines() == [tgt.replace("\n", " ") for _, tgt in pairs]
    assert main(["data", "prepare", "corpus.de", "corpus.en", "--out", "mine", "-q"]) == 0
    assert (tmp_path / "mine" / "experiment.toml").is_file()


def test_the_search_of_ctranslate2(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    monkeypatch.chdir(tmp_path)
    export_model(finished / "transformer-seed1", "converted", lines=1)
    run_block("translate_batch")
    assert capsys.readouterr().out.endswith("\n")
