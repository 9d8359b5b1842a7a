"""Attention between tokens: heads and their means, pieces joined to words, and that of one sentence.

Shapes: H heads of a layer, S source and T target pieces or words, end of sentence included.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compare.models.styles import OTHER, style_of
from compare.protocol import attends_to_source
from data.vocabulary import BOS, ESCAPE_SEQUENCE, SPACE, SPECIALS, TOKEN, UNESCAPED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Weights = NDArray[Any]
CROSS = "cross"
"""The models' name of the attention to the source; "cross.0" and so on in a model of several layers."""
KINDS = {
    CROSS: ("Attention to the source", "translation", "source"),
    "encoder": ("Self-attention within the source", "source", "source"),
    "decoder": ("Self-attention within the translation", "translation", "translation so far"),
}
"""Caption, and names of rows and columns, of each kind of attention, by the first part of a layer's name."""


def kind_of(layer: str) -> str:
    """Return the kind of attention of a layer, one of ``KINDS``."""
    return layer.split(".")[0]


class AttentionHead(NamedTuple):
    """An attention head of a layer, or a mean of heads."""

    layer: str
    """The model's name of the layer; the kind of attention for the mean over all heads of several layers."""
    number: int | None

    def __str__(self) -> str:
        """Name it as people count: "layer 1, head 2"; self-attention with its side before."""
        kind, _, layer = self.layer.partition(".")
        side = "" if kind == CROSS else f"{kind} "
        if not layer:
            return f"mean of all {side}heads" if self.number is None else f"{side}head {self.number + 1}"
        name = "mean" if self.number is None else f"head {self.number + 1}"
        return f"{side}layer {int(layer) + 1 if layer.isdecimal() else layer}, {name}"


def with_means(layers: Mapping[str, Weights]) -> tuple[tuple[AttentionHead, ...], Weights]:
    """List the heads of layers of one kind, then the means of layers with several heads, then that of all.

    ``layers`` are weights (H, rows, columns) by name. Returns the C heads and means, and their weights (C,
    rows, columns).
    """
    heads = [
        AttentionHead(name, number) for name, weights in layers.items() for number in range(len(weights))
    ]
    parts = list(layers.values())
    for name, weights in layers.items():
        if len(weights) > 1:
            heads.append(AttentionHead(name, None))
            parts.append(weights.mean(axis=0, keepdims=True))
    if len(layers) > 1:
        heads.append(AttentionHead(kind_of(next(iter(layers))), None))
        parts.append(np.concatenate(list(layers.values())).mean(axis=0, keepdims=True))
    return tuple(heads), np.concatenate(parts)


def merge_pieces(weights: Weights, tgt: Weights, src: Weights) -> Weights:
    """Merge attention weights between pieces (..., T', S') into weights between words (..., T, S).

    Weights of the pieces of a source word are summed, those of the pieces of a target word are averaged, so
    that the weights of a target word are a distribution again (Koehn and Knowles 2017, section 3.5). The
    weight of a source piece that contains several words is divided among them in proportion to their bytes.
    Pieces that contain no word are ignored. ``tgt`` (T', T) and ``src`` (S', S) are the bytes that pieces and
    words share.
    """
    src_shares = src / np.maximum(src.sum(axis=1, keepdims=True), 1)
    overlaps = tgt > 0
    merged: Weights = (overlaps / np.maximum(overlaps.sum(axis=0), 1)).T @ weights @ src_shares
    return merged


# Join the pieces of a vocabulary to words, by their labels alone: a model may write pieces into which no text
# is divided.


BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
"""The label that SentencePiece gives to a piece that is a single byte, and to no other piece."""
BROKEN = "surrogateescape"
"""Keeps bytes that are no UTF-8, which a model may write, in their places."""


def group_pieces(kind: str, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Join pieces to words and punctuation marks, as ``data.vocabulary`` divides a text.

    A piece that reaches over a border of words joins both; special symbols stay alone, and the pieces of the
    kinds "words" and "given" stay as they are. Returns the words, and for each piece the index of its word.
    """
    if kind in ("words", "given"):
        return list(pieces), list(range(len(pieces)))
    words: list[str] = []
    group: list[int] = []
    for special, neighbours in groupby(pieces, key=SPECIALS.__contains__):
        run = list(neighbours)
        for part in [[piece] for piece in run] if special else _divide(run):
            group += [len(words)] * len(part)
            words.append(part[0] if special else _text_of(part))
    return words, group


def _divide(pieces: Sequence[str]) -> list[Sequence[str]]:
    """Divide pieces without special symbols into those of each word, with the spaces before it."""
    parts = [_bytes_of(piece) for piece in pieces]
    text = b"".join(parts).decode(errors=BROKEN)
    ends = [0, *(match.end() for match in TOKEN.finditer(text))]
    borders = {len(text[:end].encode(errors=BROKEN)) for end in ends[:-1]}
    starts = list(accumulate(map(len, parts), initial=0))[:-1]
    first = [index for index, start in enumerate(starts) if start in borders or not index]
    return [pieces[begin:end] for begin, end in pairwise([*first, len(pieces)])]


def _bytes_of(piece: str) -> bytes:
    if match := BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE, " ").encode(errors=BROKEN)


def _text_of(pieces: Sequence[str]) -> str:
    """Return the text of consecutive pieces without the spaces around it; a lone space stays visible."""
    text = b"".join(map(_bytes_of, pieces)).decode(errors="replace")
    return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPED[match.group()], text).strip() or SPACE


# One sentence and its translation, between pieces or between words.


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceAttention:
    """Attention weights of one sentence and its translation.

    In a notebook it shows itself as an interactive viewer; ``plot`` draws a figure.
    """

    source: str
    translation: str
    src: list[str]
    """S source pieces, end of sentence included; an unknown word is shown as in the sentence."""
    tgt: list[str]
    """T target pieces, end of sentence included; row t of the weights was used to predict piece t."""
    kinds: tuple[str, str]
    """Kinds of vocabulary of source and target pieces; "words" for words."""
    weights: Mapping[str, Weights]
    """Weights by name: "cross" (H, T, S) to the source, "encoder" (H, S, S) and "decoder" (H, T, T) within a
    side, whose column t is the piece before tgt[t]; "cross.0" and so on in a model of several layers. Empty
    for a model without attention."""
    label: str = ""
    details: str = ""
    """How good the model is, such as "BLEU 38.2, 5,000 updates", which stands beside its name."""
    color: str = style_of(OTHER).color

    def words(self) -> "SentenceAttention":
        """Join pieces to words: weights to the pieces of a word are added, those of its pieces averaged.

        The weights of a word are then a distribution again (Koehn and Knowles 2017, section 3.5).
        """
        (src, src_group), (tgt, tgt_group) = map(group_pieces, self.kinds, (self.src, self.tgt))
        groups = {"source": src_group, "translation": tgt_group}
        groups["translation so far"] = [0, *(1 + index for index in tgt_group[:-1])]
        merged = {}
        for name, weights in self.weights.items():
            # 1 where a piece belongs to a word, (pieces, words).
            rows, columns = (np.eye(1 + max(groups[axis]))[groups[axis]] for axis in KINDS[kind_of(name)][1:])
            merged[name] = merge_pieces(weights, rows, columns).astype(np.float32)
        return replace(self, src=src, tgt=tgt, kinds=("words", "words"), weights=merged)

    def plot(self) -> "Figure":
        """Draw a heat map of every head of the attention to the source, one row of maps per layer.

        A ValueError says that the model has none.
        """
        from compare.attention.heatmap import draw_heads

        words = self.words()
        layers = [with_means({name: part}) for name, part in words.weights.items() if attends_to_source(name)]
        if not layers:
            raise ValueError(f"{self.label or 'the model'} has no attention to the source")
        heading = ", ".join(filter(None, (self.label, self.details)))
        title = [heading, self.source, f"→ {self.translation}"]
        return draw_heads(layers, words.tgt, words.src, title, self.color)

    def to_html(self) -> str:
        """Return an interactive viewer of all heads and layers as one self-contained page."""
        return render_viewer(self.source, [self])

    def _repr_html_(self) -> str:
        """Return the viewer for a notebook, as an <iframe>, which shares no names with the page around it."""
        style = f"width: 100%; height: {FRAME_PIXELS}px; border: 0"
        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" title="Attention weights" style="{style}"></iframe>'


# The interactive page.


FRAME_PIXELS = 500


def render_viewer(source: str, models: Sequence[SentenceAttention]) -> str:
    """Return a page that shows the attention of one or more models, which runs anywhere without network."""
    from compare.attention import viewer  # slow to import

    return viewer.render_page(
        viewer.PACKAGE,
        "viewer.html.j2",
        scripts=["attnbench.startPage();"],
        title=source,
        models=[(model, _viewers(model.words())) for model in models],
    )


def _viewers(model: SentenceAttention) -> list[tuple[str, dict[str, Any]]]:
    from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer, hundredths

    tokens = {"source": model.src, "translation": model.tgt}
    tokens["translation so far"] = [SPECIALS[BOS], *model.tgt[:-1]]
    viewers = []
    for kind, (title, rows, columns) in KINDS.items():
        layers = {name: weights for name, weights in model.weights.items() if kind_of(name) == kind}
        if not layers:
            continue
        heads, weights = with_means(layers)
        names = list(map(str, heads))
        last = len(names) - 1  # the widest mean
        shown = AttendedModel(name=title, heads=names, chosen=last, color=model.color)
        sentence = AttendedSentence(
            number=1, src=tokens[columns], tgt=tokens[rows], links=[], weights=[hundredths(weights)]
        )
        viewer = AttentionViewer(models=[shown], sentences=[sentence])
        viewers.append((f"Rows: {rows}; columns: {columns}.", asdict(viewer)))
    return viewers
