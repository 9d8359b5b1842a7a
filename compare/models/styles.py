"""Colour, marker and line style of every model in every picture: one colour per family, tints within it."""

from collections.abc import Mapping
from typing import NamedTuple

from compare.models.registry import ExternalSystem
from seq2seq.config import RecurrentLanguageModelConfig, Seq2SeqConfig
from transformer.config import DecoderOnlyConfig, TransformerConfig

PLAIN, RECURRENT, LUONG, TRANSFORMER = "LSTM", "LSTM with attention", "Luong", "Transformer"
DECODER_ONLY, OTHER, EXTERNAL = "decoder-only", "other", "external"
COLORS = {
    PLAIN: "#E69F00",
    RECURRENT: "#0072B2",
    LUONG: "#009E73",
    TRANSFORMER: "#D55E00",
    DECODER_ONLY: "#CC79A7",
    OTHER: "#56B4E9",
    EXTERNAL: "#000000",
}
"""Colours of families that colour-blind readers can tell apart (Okabe and Ito 2008)."""
SERIES = ("#332288", "#CC6677", "#999933", "#882255", "#44AA99", "#666666")
"""Colours of series that are no models (Tol 2021, "muted"); they differ from those of the families."""
MARKERS = "osD^vP*X"
TINTS = (0.0, 0.45, -0.4, 0.65)
"""Shares of white, or below 0 of black, in the colours of the first, second, ... model of a family."""
LINES = ("-", "--", "-.", ":")


class Style(NamedTuple):
    """Colour, marker and line of a model, by their names in matplotlib."""

    color: str
    marker: str = "o"
    linestyle: str = "-"


def style_of(family: str, number: int = 0) -> Style:
    """Return the style of a model of a family of ``COLORS``; the first 32 of one family all differ."""
    shift, variant = divmod(number, len(TINTS))
    marker = MARKERS[(list(COLORS).index(family) + shift) % len(MARKERS)]
    return Style(_tinted(COLORS[family], TINTS[variant]), marker, LINES[variant])


def series_style(index: int) -> Style:
    """Return the style of a series that is none of the models, by its index."""
    cycle, index_of_color = divmod(index, len(SERIES))
    return Style(SERIES[index_of_color], MARKERS[index % len(MARKERS)], LINES[cycle % len(LINES)])


def styles_of(architectures: Mapping[str, object]) -> dict[str, Style]:
    """Return the styles of the models of an experiment, whose configs are given by label."""
    families = {label: picture_family(config) for label, config in architectures.items()}
    members = {name: [label for label in families if families[label] == name] for name in COLORS}
    return {label: style_of(name, members[name].index(label)) for label, name in families.items()}


def picture_family(architecture: object) -> str:
    """Classify a model by its config as a family of ``COLORS``.

    Attention before the step of the decoder is Bahdanau's, after it Luong's.
    """
    if isinstance(architecture, Seq2SeqConfig) and architecture.attention is not None:
        return RECURRENT if architecture.attention.placement == "before" else LUONG
    if isinstance(architecture, Seq2SeqConfig | RecurrentLanguageModelConfig):
        return PLAIN
    if isinstance(architecture, DecoderOnlyConfig):
        return DECODER_ONLY
    if isinstance(architecture, ExternalSystem):
        return EXTERNAL
    return TRANSFORMER if isinstance(architecture, TransformerConfig) else OTHER


def _tinted(color: str, share: float) -> str:
    end = 255 if share > 0 else 0
    parts = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + abs(share) * (end - part)):02X}" for part in parts)
