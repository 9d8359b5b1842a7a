"""Export of trained models to a page that translates what its reader types and shows the attention live."""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from compare.attention.viewer import PACKAGE, read_asset, render_page
from compare.attention.weights import KINDS, kind_of, with_means
from compare.config.sections import EXTRA_TOKENS
from compare.decoding.translator import Translator
from compare.experiment.prepare import load_corpus
from compare.models.styles import picture_family, style_of
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import read_result
from data.files import write_atomically
from data.text import UNSPACED, count_words
from data.vocabulary import BOS, EOS, SPECIALS, SubwordVocabulary, Vocabulary
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from transformer.config import TransformerConfig

logger = logging.getLogger(__name__)

PRECISIONS = ("int8", "fp16")
MAX_RUNS = 4
EXAMPLES = 3
EXAMPLE_WORDS = (5, 12)
"""Least and most words of a sentence of the test set that becomes an example."""
NORMALISED = "ﬁ  ℌ "
"""Text that every normaliser of SentencePiece but the identity changes."""

FREE = """
attention placement input_feeding context_to_readout num_heads map_values attention_size decoder_start readout
embedding_size hidden_size encoder_size num_layers encoder_layers decoder_layers d_model ffn_size head_size
value_size bias tie
attention_warmup regularisation dropout word_dropout activation_dropout attention_dropout
"""
"""Settings of which the page computes every value, and those that only training reads."""
CHOICES: dict[str, tuple[object, ...]] = {
    "cell": ("lstm", "gru"),
    "direction": ("both", "forward", "backward"),
    "score": ("additive", "concat", "dot", "general", "scaled-dot"),
    "positions": ("sinusoidal", "rotary", "none"),
    "norm": ("pre", "post"),
    "norm_kind": ("layer", "rms"),
    "activation": ("relu", "swiglu"),
}
"""Values that the page computes of some other settings; of all further ones it computes the default alone."""
DERIVED: dict[type, tuple[str, ...]] = {
    Seq2SeqConfig: ("encoder_depth", "start", "start_size", "states_size", "output_size"),
    TransformerConfig: ("query_size", "attention_size"),
}
"""The families that the page computes, and what it reads of their configs beside the settings."""


def export_page(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    precision: str = "int8",
    examples: Sequence[str] = (),
    data_root: str = "",
) -> Path:
    """Write a page in which models translate what its reader types, word by word, with their attention.

    One HTML file holds everything: weights, vocabularies and the script that computes; it needs no network.

    Args:
        runs: folders of one to four finished runs.
        out: the file.
        precision: of the weights: "int8", with a scale for each row of a matrix, or "fp16", twice as large.
        examples: sentences to choose from; by default some of the first test set, if the corpus is here.
        data_root: where the corpus is now; empty: where the run's config.toml says.

    Returns:
        The file.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: a number of runs that the page does not show, a run that cannot be loaded, or a model or
            vocabulary that the page does not compute, which the message names.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"no precision {precision!r} of weights: choose one of {', '.join(PRECISIONS)}")
    if not 1 <= len(runs) <= MAX_RUNS:
        raise ValueError(f"the page shows 1 to {MAX_RUNS} runs, got {len(runs)}")
    models = [(Path(run), load_model(run)) for run in runs]
    page = render_live(models, precision, list(examples) or find_examples(Path(runs[0]), data_root))
    write_atomically(Path(out), page)
    return Path(out)


def find_examples(run: Path, data_root: str) -> list[str]:
    """Return some short sentences of the first test set of a run; none where its corpus is not here."""
    try:
        corpus = load_corpus(RunFolder.read(run, data_root=data_root).run.data)
    except (OSError, ValueError):
        logger.info(f"{run}: its corpus is not here, so the page has no examples: name some with --example")
        return []
    least, most = EXAMPLE_WORDS
    lines = corpus.splits[corpus.tests[0]].src
    return list(islice((line for line in lines if least <= count_words(line) <= most), EXAMPLES))


def render_live(
    models: Sequence[tuple[Path, Translator]], precision: str = "fp16", examples: Sequence[str] = ()
) -> str:
    """Render the page of some models, each with the folder of its run; arguments as for ``export_page``."""
    described, weights, vocabularies = [], [], list[dict[str, Any]]()
    for run, translator in models:
        sides = [_pack_vocabulary(run, vocabulary) for vocabulary in translator.vocabularies]
        vocabularies += [side for side in sides if side not in vocabularies]
        src, tgt = map(vocabularies.index, sides)
        model, packed = _describe(run, translator, precision)
        described.append(model | {"src": src, "tgt": tgt})
        weights.append(base64.b64encode(packed).decode())
    return render_page(
        PACKAGE,
        "live.html.j2",
        scripts=[read_asset(PACKAGE, name) for name in ("engine.js", "live.js")],
        styles=[read_asset(PACKAGE, "live.css")],
        content={"models": described, "vocabularies": vocabularies},
        weights=weights,
        examples=examples,
    )


def _describe(run: Path, translator: Translator, precision: str) -> tuple[dict[str, Any], bytes]:
    """Return what the page needs to know of a model, and its packed weights."""
    config: Any = getattr(translator.model, "config", None)
    if type(config) not in DERIVED:
        raise ValueError(f"{run}: the page computes recurrent and Transformer encoder-decoders alone")
    for settings in filter(None, (config, getattr(config, "attention", None))):
        _check_settings(run, settings)
    translator.model.eval().requires_grad_(False)
    arrays = {name: tensor.numpy() for name, tensor in translator.model.state_dict().items()}
    tensors, packed = pack_weights(arrays, precision)
    data = RunFolder.read(run).run.data
    description = {
        "label": translator.label,
        "heads": _list_heads(translator.model),
        "params": sum(parameter.numel() for parameter in translator.model.parameters()),
        "bleu": read_result(run).bleu,
        "languages": [data.src, data.tgt],
        "color": style_of(picture_family(config)).color,
        "family": "seq2seq" if isinstance(config, Seq2SeqConfig) else "transformer",
        "config": asdict(config) | {name: getattr(config, name) for name in DERIVED[type(config)]},
        "max_ratio": translator.decode.max_ratio,
        "extra_tokens": EXTRA_TOKENS,
        "penalty": asdict(translator.penalty),
        "precision": precision,
        "tensors": tensors,
    }
    return description, packed


def _list_heads(model: Any) -> list[dict[str, Any]]:
    """List the heads of a model and their means as heat maps do; a mean has several parts."""
    src, tgt = torch.tensor([[EOS]]), torch.tensor([[BOS]])
    layers = {name: weights[0].numpy() for name, weights in model.attention(src, None, tgt).items()}
    listed: list[dict[str, Any]] = []
    for kind in KINDS:
        if named := {name: weights for name, weights in layers.items() if kind_of(name) == kind}:
            heads, _ = with_means(named)
            for head in heads:
                parts = [
                    {"layer": one.layer, "head": one.number, "name": str(one)}
                    for one in heads
                    if one.number is not None and head in (one, (one.layer, None), (kind, None))
                ]
                listed.append({"kind": kind, "name": str(head), "parts": parts})
    return listed


def _check_settings(run: Path, config: Seq2SeqConfig | AttentionConfig | TransformerConfig) -> None:
    """Raise a ValueError for a setting that the page does not compute; it knows only what is listed above."""
    for field in fields(config):
        value, choices = getattr(config, field.name), CHOICES.get(field.name, (field.default,))
        if field.name not in FREE.split() and value not in choices:
            names = " or ".join(map(repr, choices))
            raise ValueError(
                f"{run}: the page computes no models with {field.name} = {value!r}: only {names}"
            )


def pack_weights(arrays: Mapping[str, NDArray[Any]], precision: str) -> tuple[dict[str, list[int]], bytes]:
    """Pack the weights of a model.

    In "fp16" all numbers are halves. In "int8" a row of a matrix is scaled so that its largest number is 127;
    the fp32 scales of all rows precede the matrix, and vectors are fp32.

    Returns:
        Of each tensor the offset, the rows (0: a vector) and the columns; and all bytes. Tied weights are
        packed once.
    """
    tensors, packed, offsets = dict[str, list[int]](), bytearray(), dict[int, int]()
    for name, array in arrays.items():
        address = array.__array_interface__["data"][0]
        if address not in offsets:
            packed += bytes(-len(packed) % 4)
            offsets[address] = len(packed)
            if precision == "fp16":
                packed += array.astype("<f2").tobytes()
            elif array.ndim == 1:
                packed += array.astype("<f4").tobytes()
            else:
                scales = np.abs(array).max(axis=1, keepdims=True) / 127
                packed += scales.astype("<f4").tobytes()
                packed += np.rint(array / np.maximum(scales, np.finfo("f4").tiny)).astype("i1").tobytes()
        tensors[name] = [offsets[address], array.shape[0] if array.ndim > 1 else 0, array.shape[-1]]
    return tensors, bytes(packed)


def _pack_vocabulary(run: Path, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the tokens of a vocabulary by id, and of subwords their scores."""
    content = vocabulary.to_json()
    packed: dict[str, Any] = {"kind": vocabulary.kind, "unspaced": UNSPACED}
    if vocabulary.kind == "words":
        return packed | {"pieces": [*SPECIALS, *content["counts"]]}
    if not isinstance(vocabulary, SubwordVocabulary) or vocabulary.kind != "unigram":
        raise ValueError(f'{run}: the page has no {vocabulary.kind} vocabulary: it has "words" and "unigram"')
    if vocabulary.decode(vocabulary.encode(NORMALISED)) != NORMALISED:
        raise ValueError(f"{run}: its SentencePiece model normalises text, which the page does not do")
    scores = [0.0] * vocabulary.first_token + list(vocabulary.scores().values())
    encoded = base64.b64encode(np.array(scores, "<f4").tobytes()).decode()
    return packed | {"pieces": vocabulary.pieces(range(len(vocabulary))), "scores": encoded}
