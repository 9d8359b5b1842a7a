"""Exported models: loaded again, without the code of this project, they translate as the run does."""

import ast
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compare import export_model, load_model
from compare.cli import main
from compare.decoding.search import search
from compare.integrations import exported_search, torch_export
from compare.integrations.ctranslate2_model import Numbers
from compare.integrations.export import distinct_pieces
from compare.models.registry import build
from data.vocabulary import BOS, EOS, PAD, SPECIALS, build_pair
from tests.kits.cli import Refusal
from tests.kits.contract import SPECIAL, V, sharpen, tiny
from tests.test_tracing import make
from transformer.config import TransformerConfig

ALONE = """
import json, sys, torch
from exported_search import greedy_search
encode, step = (torch.export.load(f"{sys.argv[1]}/{name}.pt2").module() for name in ("encode", "step"))
src = torch.tensor(json.loads(sys.argv[2]))
ids = greedy_search(encode, step, src, torch.ones_like(src, dtype=torch.bool), [9], pad=0, bos=2, eos=3)
assert not {"compare", "data", "seq2seq", "transformer"} & sys.modules.keys()
print(json.dumps(ids))
"""

PRESETS_OF_EACH_KIND = (
    "ladder",  # its state counts the steps
    "luong-location",  # its length is limited
    "monotonic",
    "min-gru",
    "min-lstm",
    "gnmt",
    "transformer-postnorm",
    "transformer-modern",
    "transformer-linear",
)


@pytest.mark.slow
def test_programs_of_torch_translate_as_the_run_does(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """In this process, and in one that has nothing of this project but one file."""
    run, out = finished / "transformer-seed1", tmp_path / "out"
    assert main(["export", str(run), "--to", "torch", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 8 of 8 greedy translations equal those of {run}\n"
    content = json.loads((out / "export.json").read_text())
    assert (content["lines"], content["equal"], content["versions"]["torch"]) == (8, 8, torch.__version__)
    translator = load_model(run)
    line = "red dog sees old cat"
    (tmp_path / "exported_search.py").write_text(Path(exported_search.__file__).read_text())
    source = [[*translator.vocabularies.src.encode(line), EOS]]
    command = [sys.executable, "-c", ALONE, str(out), json.dumps(source)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [translator.search([line], beam_size=1)[0].tokens[:9]]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS_OF_EACH_KIND)
def test_programs_search_as_the_model_does(name: str, tmp_path: Path):
    """Sentences of several lengths in one batch; other families are exported in tests/test_tracing.py."""
    model = make(name, num_layers=2 if name == "gnmt" else 1)
    limit = tiny(name).settings().get("max_source")
    torch_export.save_programs(model, tmp_path, limit)
    rng = random.Random(2)
    sources = [rng.choices(range(4, V - 2), k=rng.randint(0, (limit or 9) - 1)) for _ in range(12)]
    limits = [len(source) + 2 for source in sources]
    found = torch_export.translate_exported(tmp_path, sources, limits)
    for source, longest, ids in zip(sources, limits, found, strict=True):
        src = torch.tensor([[*source, EOS]])
        mask = torch.ones_like(src, dtype=torch.bool)
        (expected,) = search(model, src, mask, limits=torch.tensor([longest]), special=SPECIAL)
        assert ids == expected.tokens


def test_a_model_that_cannot_be_traced_is_refused(tmp_path: Path):
    with pytest.raises(
        ValueError, match=r"cannot trace this model: encoders with layer-normalised"
    ) as caught:
        torch_export.save_programs(make("rnmt-plus", num_layers=2), tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_search_of_exported_programs_needs_torch_alone():
    tree = ast.parse(Path(exported_search.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules == {"collections.abc", "typing", "torch"}


def test_greedy_search_takes_the_lowest_of_equal_tokens_and_stops_where_it_must():
    """A table instead of a model: the logits of the next token depend on the last one alone."""
    table = torch.full((8, 8), -5.0)
    table[BOS, [5, 6]] = 1.0  # equal: 5 comes first
    table[BOS, [PAD, BOS]] = 9.0  # never come out
    table[5, 6] = table[6, EOS] = 1.0

    def step(tokens, state, memory):
        return table[tokens], state

    src = torch.tensor([[4, EOS]]).expand(3, -1)
    found = exported_search.greedy_search(
        lambda src, mask: ([], []), step, src, src > 0, [5, 1, 0], pad=PAD, bos=BOS, eos=EOS
    )
    assert found == [[5, 6], [5], []]


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
        ({"positions": "learned", "beyond_max_positions": "clamp"}, "with beyond_max_positions 'clamp'"),
    ],
)
def test_a_transformer_that_ctranslate2_does_not_have_is_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=f"CTranslate2 has no Transformer {message}.* can be exported"):
        Numbers.of(TransformerConfig(**settings), unk=1, bos=2, eos=3)


def test_mistakes_are_one_line(finished: Path, tmp_path: Path, refusal: Refusal):
    run, out = finished / "luong-seed1", tmp_path / "out"
    assert "CTranslate2 runs encoder-decoder Transformers alone" in refusal(
        "export", run, "--to", "ctranslate2", "--out", out
    )
    assert "cannot export to 'onnx'" in refusal("export", run, "--to", "onnx", "--out", out)
    assert "no config.toml" in refusal("export", finished, "--to", "torch", "--out", out)
    out.mkdir()
    (out / "mine").touch()
    assert "holds something" in refusal("export", run, "--to", "torch", "--out", out)
    assert "something other than an exported" in refusal(
        "export", run, "--to", "torch", "--out", out, "--replace"
    )
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


def test_export_to_ctranslate2(finished: Path, tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    found = export_model(finished / "transformer-seed1", tmp_path / "out", "ctranslate2")
    assert (found.lines, found.equal) == (8, 8)
    assert (tmp_path / "out" / "model" / "model.bin").is_file()


def test_without_ctranslate2_one_line_names_the_extra(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match=r"pip install 'attnbench\[export\]'") as caught:
        export_model(finished / "transformer-seed1", tmp_path / "out", "ctranslate2")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
