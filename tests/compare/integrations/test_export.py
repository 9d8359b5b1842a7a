"""Models exported to CTranslate2 translate as the run does."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compare import export_model
from compare.cli import main
from compare.decoding.search import search
from compare.integrations.ctranslate2_model import Numbers
from compare.integrations.export import distinct_pieces
from compare.models.registry import build
from data.vocabulary import BOS, EOS, PAD, SPECIALS, build_pair
from tests.kits.cli import Refusal
from tests.kits.contract import SPECIAL, V, sharpen, tiny
from transformer.config import TransformerConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary"}, "with positions 'rotary': only 'sinusoidal' or 'learned'"),
        ({"norm": "none"}, "with norm 'none'"),
        ({"norm_kind": "rms"}, "with norm_kind 'rms'"),
        ({"activation": "swiglu"}, "with activation 'swiglu'"),
        ({"attention_kind": "linear"}, "with attention_kind 'linear'"),
        ({"cross_mask": "window:3"}, "with cross_mask 'window:3'"),
        ({"head_size": 8}, "with head_size 8"),
        ({"bias": False}, "with bias False"),
    ],
)
def test_a_transformer_that_ctranslate2_does_not_have_is_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=f"CTranslate2 has no Transformer {message}.* can be exported"):
        Numbers.of(TransformerConfig(**settings), unk=1, bos=2, eos=3)


def test_mistakes_are_one_line(finished: Path, tmp_path: Path, refusal: Refusal):
    run, out = finished / "transformer-seed1", tmp_path / "out"
    assert "encoder-decoder Transformers alone" in refusal("export", finished / "luong-seed1", "--out", out)
    assert "no config.toml" in refusal("export", finished, "--out", out)
    out.mkdir()
    (out / "mine").touch()
    assert "holds something" in refusal("export", run, "--out", out)
    assert "something other than an exported" in refusal("export", run, "--out", out, "--replace")
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_pieces_are_distinct_where_labels_are_not():
    (vocabulary, _) = build_pair((["a .", "a."], ["b", "b"]), kind="words", size=20)
    pieces = distinct_pieces(vocabulary)
    assert (
        len(pieces)
        == len(set(pieces))
        == len(vocabulary)
        > len(set(vocabulary.pieces(range(len(vocabulary)))))
    )
    assert pieces[: len(SPECIALS)] == list(SPECIALS)


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "post", "activation": "gelu", "tie": "all", "positions": "learned"}]
)
def test_ctranslate2_searches_as_we_do(settings: dict, tmp_path: Path):
    """Random weights far from their start, on sentences of several lengths, with a unit in every part."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    from compare.integrations.ctranslate2_model import convert, translate_converted

    config = replace(tiny("transformer").architecture, encoder_layers=1, decoder_layers=2, **settings)
    torch.manual_seed(0)
    model = build(config, V, V).eval()
    sharpen(model)
    pieces = [f"p{index}" for index in range(V)]
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    convert(arrays, Numbers.of(config, unk=1, bos=BOS, eos=EOS), tmp_path / "model", pieces, pieces)
    rng = random.Random(3)
    sources = [rng.choices(range(4, V), k=rng.randint(1, 9)) for _ in range(30)]
    limits = [len(source) + 3 for source in sources]
    found = translate_converted(
        tmp_path / "model", pieces, pieces, sources, limits, pad=PAD, bos=BOS, eos=EOS
    )
    for source, longest, ids in zip(sources, limits, found, strict=True):
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


def test_without_ctranslate2_one_line_names_the_extra(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match=r"pip install 'attnbench\[export\]'") as caught:
        export_model(finished / "transformer-seed1", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
