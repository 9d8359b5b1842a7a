"""The formulas that a model uses: from its config to functions of the ``formulas.py`` of both packages."""

import inspect
from collections.abc import Callable
from typing import Any

from compare.models.hybrid import HybridConfig
from compare.models.ladder import LadderConfig
from seq2seq import formulas as recurrent
from seq2seq.config import AttentionConfig, RecurrentLanguageModelConfig, Seq2SeqConfig
from transformer import formulas
from transformer.config import DecoderOnlyConfig, LayerConfig

Formula = Callable[..., Any]

SCORES: dict[str, Formula] = {"concat": recurrent.additive_score} | {
    name: getattr(recurrent, f"{name.replace('-', '_')}_score")
    for name in (
        "additive",
        "dot",
        "general",
        "scaled-dot",
        "location",
        "static",
        "static-factorised",
        "dynamic-factorised",
        "location-aware",
        "coverage",
    )
}
SCOPES: dict[str, Formula] = {"local-m": recurrent.local_m, "local-p": recurrent.local_p}
NORMALISERS: dict[str, tuple[Formula, ...]] = {
    "softmax": (recurrent.softmax,),
    "sparsemax": (recurrent.sparsemax,),
    "entmax-1.5": (recurrent.entmax15,),
    "straight-through": (recurrent.straight_through,),
    "reinforce": (recurrent.hard, recurrent.reinforce),
    "monotonic": (recurrent.monotonic,),
}
CELLS: dict[str, tuple[Formula, ...]] = {
    "lstm": (recurrent.lstm_cell,),
    "gru": (recurrent.gru_cell,),
    "layer-norm-lstm": (recurrent.standardise, recurrent.layer_norm_lstm_cell),
    "min-gru": (recurrent.min_gru_cell,),
    "min-lstm": (recurrent.min_lstm_cell,),
}
POSITIONS: dict[str, tuple[Formula, ...]] = {
    "sinusoidal": (formulas.sinusoid,),
    "network": (formulas.sinusoid, formulas.gelu),
    "concat": (formulas.sinusoid,),
    "rotary": (formulas.rotary,),
    "relative": (formulas.relative_index,),
    "alibi": (formulas.alibi_slope, formulas.alibi),
}
ATTENTIONS: dict[str, tuple[Formula, ...]] = {
    "scaled": (formulas.softmax, formulas.scaled_scores, formulas.attention),
    "unscaled": (formulas.softmax, formulas.unscaled_scores),
    "hard": (formulas.softmax, formulas.scaled_scores, formulas.hard_weights),
    "linear": (formulas.linear_weights,),
}
NORMS: dict[str, Formula] = {"layer": formulas.layer_norm, "rms": formulas.rms_norm}
RESIDUALS: dict[str, Formula] = {
    "pre": formulas.pre_norm,
    "post": formulas.post_norm,
    "none": formulas.no_norm,
}


def formulas_of(config: object) -> list[Formula]:
    """List the formulas of a model, without repetition; those of mechanisms from outside are not known.

    Args:
        config: settings of a model of any family.
    """
    if isinstance(config, HybridConfig):
        found = [*formulas_of(config.encoder), *formulas_of(config.decoder)]
    elif isinstance(config, RecurrentLanguageModelConfig):
        found = _recurrent(config.decoder)
    elif isinstance(config, Seq2SeqConfig):
        found = _recurrent(config)
    elif isinstance(config, LayerConfig):
        found = _transformer(config)
    else:
        found = []
    return list(dict.fromkeys(found))


def formula_sources(config: object) -> dict[str, str]:
    """Return the source text of the formulas of a model, by module and name, such as "seq2seq.lstm_cell"."""
    return {
        f"{formula.__module__.partition('.')[0]}.{formula.__name__}": inspect.getsource(formula).rstrip()
        for formula in formulas_of(config)
    }


def _recurrent(config: Seq2SeqConfig) -> list[Formula]:
    found: list[Formula] = [*CELLS.get(config.cell, ()), recurrent.read]
    if config.pre_norm:
        found += [recurrent.residual, recurrent.rms_norm, recurrent.pre_norm_stack_step]
    elif config.num_layers > 1:
        found += [recurrent.residual, recurrent.stack_step]
    if config.self_attention != "none":
        found += [recurrent.softmax, recurrent.self_attention]
    if config.start == "bridge":
        found.append(recurrent.bridge)
    if config.attention is None:
        found.append(recurrent.lstm_step)
    else:
        found += _attention(config.attention, config.num_layers)
    readouts = {"tanh": [recurrent.tanh_readout], "maxout": [recurrent.maxout_readout]}
    return found + readouts.get(config.readout, [])


def _attention(attention: AttentionConfig, num_layers: int) -> list[Formula]:
    parts = [SCORES.get(attention.score), SCOPES.get(attention.scope)]
    found = [part for part in parts if part is not None]
    found += [*NORMALISERS.get(attention.normaliser, ()), recurrent.weighted_sum]
    if attention.placement == "after":
        return [*found, recurrent.luong_step]
    is_gnmt = attention.context_to == "all" and attention.query_layer == 1 and num_layers > 1
    return [*found, recurrent.gnmt_step if is_gnmt else recurrent.bahdanau_step]


def _transformer(config: LayerConfig) -> list[Formula]:
    found: list[Formula] = [formulas.scaled_embedding, *POSITIONS.get(config.positions, ())]
    mixers = {"self-attention"}
    if isinstance(config, LadderConfig):
        mixers = {config.encoder_mixer, config.decoder_mixer}
    for mixer in sorted(mixers - {"self-attention"}):
        found += [*CELLS[mixer], recurrent.read]
    found += [*ATTENTIONS[config.attention_kind], formulas.causal, formulas.multi_head]
    if config.norm != "none":
        found.append(NORMS[config.norm_kind])
    if not isinstance(config, LadderConfig) or config.feed_forward:
        found += [getattr(formulas, config.activation), formulas.feed_forward]
    found += [RESIDUALS[config.norm], formulas.encoder_layer]
    return found if isinstance(config, DecoderOnlyConfig) else [*found, formulas.decoder_layer]
