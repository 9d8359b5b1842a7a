"""Presets: models of the literature under the names used there."""

from dataclasses import dataclass, field, replace
from typing import Any

from compare.models.departures import DEPARTURES, Departure
from compare.models.hybrid import HybridConfig
from compare.models.ladder import LadderConfig
from compare.models.registry import Architecture, ResolvedModel, family_of
from compare.optim import OptimConfig
from compare.system.messages import abbreviate, nearest
from compare.system.plugins import track_registry
from seq2seq.config import AttentionConfig, Cell, RecurrentLanguageModelConfig, Seq2SeqConfig
from transformer.config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model of the literature with its default settings."""

    about: str
    """Short description."""
    source: str
    """The paper, with section or table if only a part of it is meant."""
    architecture: Architecture
    """Config of the model."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer settings suited to the architecture."""
    paper_size: bool = False
    """Whether the model has the size of its paper, which needs a GPU; else it suits a quick comparison."""
    departures: tuple[Departure, ...] | None = None
    """Differences from the model of the paper; None: not listed."""

    @property
    def model(self) -> ResolvedModel:
        """Architecture and optimizer settings, nothing overridden."""
        return ResolvedModel(architecture=self.architecture, optim=self.optim)


def _before(**attention: Any) -> Seq2SeqConfig:
    """Configure attention before the recurrent cell, with the context as its input (Bahdanau et al. 2015)."""
    settings = AttentionConfig(placement="before", **attention)
    return Seq2SeqConfig(attention=settings, decoder_start="bridge", tie="output")


def _after(score: str, **attention: Any) -> Seq2SeqConfig:
    """Configure attention after the cell, with input feeding (Luong et al. 2015, sections 3.1 and 3.3)."""
    settings = AttentionConfig(score=score, placement="after", input_feeding=True, **attention)
    return Seq2SeqConfig(attention=settings, decoder_start="bridge", tie="output")


def _parallel(cell: Cell) -> Seq2SeqConfig:
    """Configure cells and an attention that feed nothing back, so that training runs all steps at once."""
    settings = AttentionConfig(score="scaled-dot", num_heads=4, placement="after")
    return Seq2SeqConfig(
        attention=settings, cell=cell, num_layers=3, pre_norm=True, decoder_start="bridge", tie="output"
    )


_PLAIN = Seq2SeqConfig(attention=None, decoder_start="last", tie="output")
_TRANSFORMER = TransformerConfig()
_WARM = OptimConfig(warmup_updates=400)
_LUONG, _VASWANI, _FENG = "Luong et al. 2015", "Vaswani et al. 2017", "Feng et al. 2024"

PRESETS: dict[str, Preset] = {
    "lstm": Preset(
        about="LSTM encoder-decoder without attention", source="Sutskever et al. 2014", architecture=_PLAIN
    ),
    "lstm-reversed": Preset(
        about="the same, one-way, the source read from its end",
        source="Sutskever et al. 2014",
        architecture=replace(_PLAIN, direction="backward"),
    ),
    "gru-context": Preset(
        about="GRU without attention, the source's summary fed at every step",
        source="Cho et al. 2014",
        architecture=replace(_PLAIN, cell="gru", direction="forward", feed_summary=True),
    ),
    "bahdanau": Preset(
        about="additive attention before the cell", source="Bahdanau et al. 2015", architecture=_before()
    ),
    "luong-dot": Preset(
        about="dot-product attention after the cell, input feeding",
        source=_LUONG,
        architecture=_after("dot"),
    ),
    "luong-general": Preset(
        about="bilinear attention after the cell, input feeding",
        source=_LUONG,
        architecture=_after("general"),
    ),
    "luong-concat": Preset(
        about="additive attention after the cell, input feeding",
        source=_LUONG,
        architecture=_after("concat"),
    ),
    "luong-location": Preset(
        about="weights from the decoder state alone", source=_LUONG, architecture=_after("location")
    ),
    "luong-local-m": Preset(
        about="bilinear attention in a window about the own position",
        source=_LUONG,
        architecture=_after("general", scope="local-m"),
    ),
    "luong-local-p": Preset(
        about="bilinear attention in a window about a predicted position",
        source=_LUONG,
        architecture=_after("general", scope="local-p"),
    ),
    "scaled-dot-rnn": Preset(
        about="scaled dot product of projections after the cell, one head",
        source=f"{_VASWANI}, in an RNN",
        architecture=_after("scaled-dot"),
    ),
    "multihead-rnn": Preset(
        about="the same with four heads",
        source=f"{_VASWANI}, in an RNN",
        architecture=_after("scaled-dot", num_heads=4),
    ),
    "hard-st": Preset(
        about="additive attention that picks one word, trained straight-through",
        source="Xu et al. 2015; Bengio et al. 2013",
        architecture=_before(normaliser="straight-through"),
    ),
    "hard-reinforce": Preset(
        about="additive attention that draws one word, trained by REINFORCE",
        source="Xu et al. 2015",
        architecture=_before(normaliser="reinforce"),
    ),
    "location-aware": Preset(
        about="additive attention that also sees where it attended the step before",
        source="Chorowski et al. 2015",
        architecture=_before(score="location-aware"),
    ),
    "coverage": Preset(
        about="additive attention that also sees how much each word was attended so far",
        source="Tu et al. 2016",
        architecture=_before(score="coverage"),
    ),
    "monotonic": Preset(
        about="additive attention that reads from left to right and stops at one word",
        source="Raffel et al. 2017",
        architecture=_before(normaliser="monotonic"),
    ),
    "static": Preset(
        about="attention weights that are parameters",
        source="compare Tay et al. 2021",
        architecture=_after("static"),
    ),
    "static-factorised": Preset(
        about="weights that are a product of two small parameter matrices",
        source="compare Tay et al. 2021",
        architecture=_after("static-factorised", attention_size=8),
    ),
    "dynamic-factorised": Preset(
        about="weights that are a product of two functions, of target and source states",
        source="compare Tay et al. 2021",
        architecture=_after("dynamic-factorised", attention_size=64),
    ),
    "self-attentive-rnn": Preset(
        about="bahdanau whose RNNs also attend to their own earlier states",
        source="compare Cheng et al. 2016",
        architecture=replace(_before(), self_attention="both"),
    ),
    "min-gru": Preset(
        about="three minGRU layers with RMSNorm, trained in parallel over time, four heads after them",
        source=f"compare {_FENG}",
        architecture=_parallel("min-gru"),
    ),
    "min-lstm": Preset(
        about="three minLSTM layers with RMSNorm, trained in parallel over time, four heads after them",
        source=f"compare {_FENG}",
        architecture=_parallel("min-lstm"),
    ),
    "transformer": Preset(
        about="self-attention encoder-decoder", source=_VASWANI, architecture=_TRANSFORMER, optim=_WARM
    ),
    "transformer-postnorm": Preset(
        about="norms after the residual sum, as first published",
        source=_VASWANI,
        architecture=replace(_TRANSFORMER, norm="post"),
        optim=_WARM,
    ),
    "transformer-learned": Preset(
        about="positions that are learned",
        source="Gehring et al. 2017",
        architecture=replace(_TRANSFORMER, positions="learned"),
        optim=_WARM,
    ),
    "transformer-nopos": Preset(
        about="no positions: the source is a bag of words",
        source=f"{_VASWANI}, without section 3.5",
        architecture=replace(_TRANSFORMER, positions="none"),
        optim=_WARM,
    ),
    "transformer-modern": Preset(
        about="rotary positions, RMSNorm before each sublayer, SwiGLU, no biases",
        source="compare Touvron et al. 2023; Su et al. 2021",
        architecture=replace(
            _TRANSFORMER,
            positions="rotary",
            norm_kind="rms",
            activation="swiglu",
            ffn_size=680,  # 2/3 of 1,024: as many weights as with two matrices
            bias=False,
        ),
        optim=_WARM,
    ),
    "transformer-linear": Preset(
        about="attention without a softmax, whose time is linear in the length",
        source="Katharopoulos et al. 2020",
        architecture=replace(_TRANSFORMER, attention_kind="linear"),
        optim=_WARM,
    ),
    "decoder-only": Preset(
        about="source and target as one sequence under a prefix mask",
        source="Liu et al. 2018; Raffel et al. 2020",
        architecture=DecoderOnlyConfig(),
        optim=_WARM,
    ),
    "transformer-rnn": Preset(
        about="Transformer encoder, bahdanau's decoder",
        source="compare Chen et al. 2018",
        architecture=HybridConfig(
            encoder=_TRANSFORMER, decoder=replace(_before(), direction="forward", dropout=0.1)
        ),
        optim=_WARM,
    ),
    "rnn-transformer": Preset(
        about="LSTM encoder, Transformer decoder",
        source="compare Chen et al. 2018",
        architecture=HybridConfig(encoder=replace(_before(), dropout=0.1), decoder=_TRANSFORMER),
        optim=_WARM,
    ),
    "ladder": Preset(
        about="first rung from an RNN to the Transformer: LSTM layers, one attention at the last",
        source="compare Domhan 2018",
        architecture=LadderConfig(
            num_heads=1,
            positions="none",
            norm="none",
            encoder_mixer="lstm",
            decoder_mixer="lstm",
            cross_layers="last",
            feed_forward=False,
            residual=False,
        ),
        optim=_WARM,
    ),
    "bahdanau-rnnsearch": Preset(
        about="RNNsearch: GRU 1,000, additive attention, maxout readout",
        source="Bahdanau et al. 2015, appendix A",
        architecture=Seq2SeqConfig(
            cell="gru",
            embedding_size=620,
            hidden_size=1000,
            encoder_size=2000,
            decoder_start="bridge",
            readout="maxout",
            dropout=0.0,
        ),
        paper_size=True,
    ),
    "luong-2015": Preset(
        about="local-p with input feeding, four LSTM layers of 1,000, residual from the third",
        source="Luong et al. 2015, table 1",
        architecture=replace(
            _after("general", scope="local-p"),
            embedding_size=1000,
            hidden_size=1000,
            num_layers=4,
            direction="backward",
            tie="none",
        ),
        paper_size=True,
    ),
    "bahdanau-4x1024": Preset(
        about="additive attention before four LSTM layers of 1,024, residual from the third",
        source="compare Wu et al. 2016; sizes of Luong et al. 2017",
        architecture=Seq2SeqConfig(
            embedding_size=1024, hidden_size=1024, num_layers=4, decoder_start="bridge"
        ),
        paper_size=True,
    ),
    "gnmt": Preset(
        about="eight LSTM layers, residual from the third; the bottom one attends, all read the context",
        source="Wu et al. 2016, section 3",
        architecture=Seq2SeqConfig(
            attention=AttentionConfig(query_layer=1, context_to="all", context_to_readout=False),
            embedding_size=1024,
            hidden_size=1024,
            num_layers=8,
            direction="both-bottom",
            decoder_start="last",
            readout="none",
        ),
        paper_size=True,
    ),
    "rnmt-plus": Preset(
        about="GNMT with layer-normalised LSTMs, a bidirectional encoder and four heads",
        source="Chen et al. 2018, RNMT+",
        architecture=Seq2SeqConfig(
            cell="layer-norm-lstm",
            attention=AttentionConfig(num_heads=4, query_layer=1, context_to="all"),
            embedding_size=1024,
            hidden_size=1024,
            encoder_size=2048,
            num_layers=8,
            encoder_layers=6,
            decoder_start="zeros",
            readout="none",
            dropout=0.3,
        ),
        paper_size=True,
    ),
    "transformer-postnorm-2x128": Preset(
        about="two layers of 128, norms after the residual sum",
        source="compare Vaswani et al. 2018, transformer_tiny",
        architecture=replace(
            _TRANSFORMER, d_model=128, ffn_size=512, encoder_layers=2, decoder_layers=2, norm="post"
        ),
        optim=_WARM,
        paper_size=True,
    ),
    "transformer-tiny": Preset(
        about="two layers of 128, norms before sublayers, dropout of weights and ReLU",
        source="Vaswani et al. 2018, tensor2tensor, transformer_tiny",
        architecture=TransformerConfig(
            d_model=128,
            num_heads=4,
            encoder_layers=2,
            decoder_layers=2,
            ffn_size=512,
            attention_dropout=0.1,
            activation_dropout=0.1,
            tie="all",
        ),
        optim=OptimConfig(learning_rate=2e-3, schedule="inverse-sqrt", warmup_updates=8000),
        paper_size=True,
    ),
    "transformer-base": Preset(
        about="six layers of 512, eight heads",
        source="Vaswani et al. 2017, table 3",
        architecture=TransformerConfig(
            d_model=512,
            num_heads=8,
            encoder_layers=6,
            decoder_layers=6,
            ffn_size=2048,
            norm="post",
            tie="all",
        ),
        optim=OptimConfig(learning_rate=7e-4, schedule="inverse-sqrt", warmup_updates=4000),
        paper_size=True,
    ),
    "transformer-big": Preset(
        about="six layers of 1,024, sixteen heads",
        source="Vaswani et al. 2017, table 3",
        architecture=TransformerConfig(
            d_model=1024,
            num_heads=16,
            encoder_layers=6,
            decoder_layers=6,
            ffn_size=4096,
            dropout=0.3,
            norm="post",
            tie="all",
        ),
        optim=OptimConfig(learning_rate=5e-4, schedule="inverse-sqrt", warmup_updates=4000),
        paper_size=True,
    ),
    "lstm-lm": Preset(
        about="language model of the target side: two LSTM layers, dropout outside the recurrence",
        source="Zaremba et al. 2014",
        architecture=RecurrentLanguageModelConfig(),
    ),
    "transformer-lm": Preset(
        about="language model of the target side: causal self-attention, norms before sublayers",
        source="Radford et al. 2018; compare Liu et al. 2018",
        architecture=LanguageModelConfig(num_layers=3),
        optim=_WARM,
    ),
}

for _name, _departures in DEPARTURES.items():
    PRESETS[_name] = replace(PRESETS[_name], departures=_departures)
track_registry("preset", PRESETS)


def find_preset(name: str, context: str = "") -> Preset:
    """Look up a preset.

    Args:
        name: name of the preset.
        context: beginning of the error message, such as file and key.

    Raises:
        ValueError: unknown preset; the message suggests the nearest name.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = nearest(name, PRESETS, cutoff=0.7)
    hint = (
        f"did you mean {near!r}?"
        if near is not None
        else f"known are {', '.join(PRESETS)} (one of your own needs its plug-in: docs/plugins.md)"
    )
    raise ValueError(f"{context}unknown preset {abbreviate(name)}; {hint}")


def list_presets() -> list[str]:
    """Return the names of all presets, registered ones included."""
    return list(PRESETS)


def register_preset(name: str, preset: Preset) -> None:
    """Add a preset, so that ``preset = name`` works in a ``[[models]]`` table.

    Args:
        name: how configs name it.
        preset: its config must be of a registered family (see ``register_family``).

    Raises:
        ValueError: the name is empty or taken, or ``preset`` is not a ``Preset``, or its config is
            of no registered family.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a preset must be a non-empty string, found {name!r}")
    if not isinstance(preset, Preset):
        raise ValueError(f"the preset {name!r} must be a Preset, found {preset!r:.80}")
    if name in PRESETS:
        raise ValueError(f"the preset {name!r} exists already: choose another name")
    family_of(preset.architecture)
    PRESETS[name] = preset
