"""The page that translates what its reader types: its script computes what the models compute."""

import base64
import json
import random
import shutil
import struct
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from compare import export_page, load_model
from compare.config.sections import DecodeConfig
from compare.decoding.search import LengthPenalty
from compare.decoding.translator import Translator
from compare.experiment.verify import sharpen
from compare.integrations.live import _check_settings, render_live
from compare.models.registry import build
from data.batches import make_source_batch
from data.corpus import Pairs
from data.grammar import embedded_splits
from data.vocabulary import BOS, PAD, SubwordVocabulary, VocabularyPair, build_pair
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from tests.conftest import WORDS
from tests.kits.common import ROOT, Refusal
from transformer.config import TransformerConfig

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node here, which runs the page's script")
DEMO = [ROOT / "results" / "demo" / f"{name}-seed1" for name in ("bahdanau", "luong-general", "transformer")]
RUNNER = r"""
const { page, sentences, settings } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const texts = [...page.matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map((match) => match[1]);
const script = texts.pop(); // after the content and the weights of each model
const begin = script.indexOf("const engine = ");
const end = script.indexOf("})();", begin) + 5;
require("vm").runInThisContext(`${script.slice(begin, end)} globalThis.engine = engine;`);
const rowsOf = (rows) => rows.map(({ weights }) => weights.map((head) => [...head]));
const run = (model) => sentences.map((text) => {
  const { ids, words, unknown } = model.src.encode(text);
  const { steps, attention } = [...engine.search(model, ids, settings)].at(-1);
  const tokens = steps.slice(0, -1).map(({ token }) => token);
  const weights = Object.fromEntries(Object.entries(attention).map(([name, rows]) => [name, rowsOf(rows)]));
  for (const name of Object.keys(steps[0].attention)) {
    weights[name] = rowsOf(steps.map((step) => step.attention[name]));
  }
  return { ids, words, unknown, tokens, text: model.tgt.decode(tokens), weights };
});
console.log(JSON.stringify(engine.loadModels(JSON.parse(texts.shift()), texts).map(run)));
"""
AS_TRAINED = {"temperature": 1, "hard": False, "scaled": True}


def run_script(page: str, sentences: list[str], beam: int = 1, **formula: Any) -> list[list[dict[str, Any]]]:
    """Run the script of a page in node: what each model does with each sentence."""
    settings = {"beam": beam, "formula": AS_TRAINED | formula}
    text = json.dumps({"page": page, "sentences": sentences, "settings": settings})
    done = subprocess.run([str(NODE), "-e", RUNNER], input=text, capture_output=True, text=True, check=False)
    assert not done.stderr
    shown: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return shown


def largest_difference(translator: Translator, text: str, shown: dict[str, Any]) -> float:
    """Compare all attention weights of a translation, in the page (rows, heads, columns)."""
    src = make_source_batch([translator.vocabularies.src.encode(text)])
    with torch.inference_mode():
        weights = translator.model.attention(*src, torch.tensor([[BOS, *shown["tokens"]]]))
    assert set(weights) == set(shown["weights"])
    worst = 0.0
    for name, layer in weights.items():
        for row, heads in enumerate(shown["weights"][name]):
            ours, page = layer[0, :, row], torch.tensor(heads)  # the page has no weights of later tokens
            worst = max(worst, float((ours[:, : page.size(1)] - page).abs().max()))
    return worst


RANDOM = random.Random(3)
LINES = [" ".join(RANDOM.choices(list(WORDS), k=RANDOM.randint(1, 9))) for _ in range(96)]
SENTENCES = [*LINES, "red  dog", "Ж: a 日本 dog's ﬁre-tree!", "▁ ␛0 ￭,", "“red”…tree."]
RECURRENT = Seq2SeqConfig(embedding_size=12, hidden_size=8)
SMALL = TransformerConfig(d_model=16, num_heads=2, ffn_size=22, encoder_layers=2, decoder_layers=2)
LUONG = AttentionConfig(placement="after", input_feeding=True, score="general")
FAMILIES = {
    "bahdanau": replace(RECURRENT, num_layers=2),
    "luong": replace(RECURRENT, attention=LUONG, num_layers=3, tie="output"),
    "gru, dot, no feeding": replace(
        RECURRENT, cell="gru", attention=replace(LUONG, score="dot", input_feeding=False), direction="forward"
    ),
    "gru, two heads": replace(
        RECURRENT, cell="gru", attention=replace(LUONG, num_heads=2), decoder_start="last", num_layers=2
    ),
    "scaled dot": replace(
        RECURRENT,
        attention=AttentionConfig(score="scaled-dot", context_to_readout=False),
        **{"direction": "backward", "decoder_start": "zeros", "readout": "maxout"},
    ),
    "concat, several heads": replace(RECURRENT, attention=replace(LUONG, score="concat", num_heads=4)),
    "no attention": replace(RECURRENT, attention=None, readout="none", num_layers=2),
    "transformer": SMALL,
    "post-norm": replace(SMALL, norm="post", norm_kind="rms", head_size=6, value_size=4, tie="none"),
    "modern": replace(SMALL, positions="rotary", norm_kind="rms", activation="swiglu", bias=False, tie="all"),
}


@cache
def make_vocabularies(kind: str) -> VocabularyPair:
    pairs = Pairs(tuple(LINES), tuple(" ".join(WORDS[word] for word in line.split()) for line in LINES))
    return build_pair(pairs, kind=kind, size=290 if kind in ("unigram", "bpe") else 12)


def make_translator(config: Any, kind: str = "unigram") -> Translator:
    """Build a model with random weights that fp16 has, and its vocabularies."""
    vocabularies = make_vocabularies(kind)
    torch.manual_seed(0)
    model = build(config, *map(len, vocabularies)).eval()
    sharpen(model)
    decode, penalty = DecodeConfig(max_ratio=1.3), LengthPenalty(0.6)
    return Translator(model.half().float(), vocabularies, decode, torch.device("cpu"), penalty, label="mine")


def check_twin(
    translator: Translator, sentences: list[str], beam: int = 1, precision: str = "fp16"
) -> list[list[int]]:
    """Compare ids, translations and attention weights with those of the page; returns the translations."""
    (shown,) = run_script(render_live([(DEMO[0], translator)], precision), sentences, beam)
    src, tgt = translator.vocabularies
    tokens = [one.tokens for one in translator.search(sentences, beam)]
    assert [one["ids"] for one in shown] == src.encode_all(sentences)
    assert [one["tokens"] for one in shown] == tokens
    assert [one["text"] for one in shown] == [tgt.decode(ids) for ids in tokens]
    assert max(map(largest_difference, [translator] * len(shown), sentences, shown)) < 1e-4
    return tokens


@needs_node
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("family", "kind"), [("bahdanau", "words"), *((family, "unigram") for family in FAMILIES)]
)
def test_the_script_is_the_twin_of_the_models(family: str, kind: str, count: int):
    """Greedy search and a beam of 4; the last sentences have characters that the vocabulary lacks."""
    translator = make_translator(FAMILIES[family], kind)
    check_twin(translator, SENTENCES[-count:])
    check_twin(translator, SENTENCES[-count // 5 :], beam=4)


@needs_node
def test_weights_in_int8():
    """Weights that a scale per row and 8 bits express exactly give the same translations and attention."""
    translator = make_translator(RECURRENT)
    with torch.no_grad():
        for matrix in (weights for weights in translator.model.parameters() if weights.dim() > 1):
            scales = matrix.abs().amax(1, keepdim=True) / 127
            matrix.copy_((matrix / scales).round() * scales)
        translator.model.output.bias[[PAD, BOS]] += 5  # both are likely, but never chosen
    check_twin(translator, SENTENCES[-20:], precision="int8")


@needs_node
def test_a_beam_obeys_the_length_penalty_and_ends_with_its_fourth_hypothesis():
    """Many translations are about as probable: three penalties give three lengths."""
    translator, lengths = make_translator(RECURRENT, "words"), set()
    torch.manual_seed(1)
    model = translator.model = build(RECURRENT, *map(len, translator.vocabularies)).eval()
    with torch.no_grad():
        model.output.weight.mul_(10)
    model.half().float()
    for penalty in (LengthPenalty(0.0), LengthPenalty(2.0), LengthPenalty(1.0, "length")):
        translator.penalty = penalty
        lengths.add(sum(map(len, check_twin(translator, SENTENCES[:40], beam=4))))
    assert len(lengths) == 3, lengths


@needs_node
@pytest.mark.parametrize("unit", [1.0, 1.1])
def test_equally_probable_segmentations(unit: float):
    """Scores are proportional to lengths, so all segmentations tie: exactly, or but for rounding in fp32."""
    translator = make_translator(RECURRENT)
    vocabulary = translator.vocabularies.src
    model = base64.b64decode(vocabulary.to_json()["model"])
    for piece, score in vocabulary.scores().items():
        start = b"\n" + bytes([len(piece.encode())]) + piece.encode() + b"\x15"  # fields 1 and 2
        former, tied = (struct.pack("<f", number) for number in (score, -unit * len(piece)))
        assert start + former in model
        model = model.replace(start + former, start + tied)
    translator.vocabularies = translator.vocabularies._replace(src=SubwordVocabulary("unigram", model))
    check_twin(translator, SENTENCES)


@needs_node
@pytest.mark.parametrize(
    ("family", "formula", "changes"),
    [
        ("transformer", {"hard": True}, {"attention_kind": "hard"}),
        ("modern", {"scaled": False}, {"attention_kind": "unscaled"}),
        ("luong", {"temperature": 0.5}, {"attention": replace(LUONG, temperature=0.5)}),
        ("bahdanau", {"hard": True}, {"attention": AttentionConfig(normaliser="straight-through")}),
    ],
)
def test_a_changed_formula_is_that_of_a_changed_model(
    family: str, formula: dict[str, Any], changes: dict[str, Any]
):
    translator = make_translator(FAMILIES[family])
    (shown,) = run_script(render_live([(DEMO[0], translator)]), SENTENCES[:20], **formula)
    changed = build(replace(FAMILIES[family], **changes), *map(len, translator.vocabularies)).eval()
    changed.load_state_dict(translator.model.state_dict())
    translator.model = changed
    assert [one["tokens"] for one in shown] == [one.tokens for one in translator.search(SENTENCES[:20], 1)]


@needs_node
@pytest.mark.slow
def test_trained_models_translate_in_the_page(tmp_path: Path):
    """All of 100 translations are equal in fp16, and nearly all in int8; so is fp16's attention."""
    splits = embedded_splits(train=5_000, valid=2, test=100, test_long=2, grammar="short")
    sentences = [pair.src for pair in splits["test"]]
    for precision, least in (("fp16", 100), ("int8", 95)):
        page = export_page(DEMO, tmp_path / "page.html", precision=precision).read_text(encoding="utf-8")
        for run, shown in zip(DEMO, run_script(page, sentences), strict=True):
            translator = load_model(run)
            expected = translator.translate(sentences, beam_size=1)
            equal = sum(one["text"] == text for one, text in zip(shown, expected, strict=True))
            assert equal >= least, f"{run.name}, {precision}: {equal} of 100"
            if precision == "fp16":
                translator.model = translator.model.half().float()
                assert max(map(largest_difference, [translator] * 100, sentences, shown)) < 1e-4


@needs_node
def test_words_of_the_axes_are_those_of_the_heat_maps():
    translator = make_translator(RECURRENT)
    (shown,) = run_script(render_live([(DEMO[0], translator)]), SENTENCES)
    for text, one in zip(SENTENCES, shown, strict=True):
        assert [*one["words"], "<eos>"] == translator.attend(text, "rot").words().src
    assert {character for one in shown for character in one["unknown"]} >= {"Ж", "日", "本"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(RECURRENT, cell="min-gru"), "cell = 'min-gru': only 'lstm' or 'gru'"),
        (replace(RECURRENT, self_attention="decoder"), "self_attention = 'decoder': only 'none'"),
        (AttentionConfig(score="location"), "score = 'location': only 'additive' or"),
        (AttentionConfig(temperature=2.0), "temperature = 2.0: only 1.0"),
        (replace(SMALL, activation="gelu"), "activation = 'gelu': only 'relu' or 'swiglu'"),
        (replace(SMALL, num_kv_heads=1), "num_kv_heads = 1: only None"),
        (replace(SMALL, cross_mask="window:3"), "cross_mask = 'window:3': only 'full'"),
    ],
)
def test_a_setting_that_the_page_does_not_compute_is_named(config: Any, message: str):
    with pytest.raises(ValueError, match=f"mine: the page computes no models with {message}"):
        _check_settings(Path("mine"), config)


def test_what_cannot_be_exported_is_one_line(finished: Path, tmp_path: Path, refusal: Refusal):
    run, out = finished / "transformer-seed1", tmp_path / "live.html"
    assert "the page shows 1 to 4 runs, got 5" in refusal("export", *[run] * 5, "--out", out)
    assert "no precision 'int4'" in refusal("export", run, "--out", out, "--precision", "int4")
    assert "--lines has no effect" in refusal("export", run, "--out", out, "--lines", "3")
    assert "end --out" in refusal("export", run, run, "--out", tmp_path / "folder")
    assert "has no weights" in refusal("export", ROOT / "results/demo/lstm-seed2", "--out", out)
    for kind in ("bpe", "characters"):
        with pytest.raises(ValueError, match=f'the page has no {kind} vocabulary: it has "words"'):
            render_live([(run, make_translator(RECURRENT, kind))])
    assert not out.exists()
