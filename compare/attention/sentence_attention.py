"""Attention weights of one sentence and its translation, between pieces or between words.

Shapes: H heads of a layer, S source and T target pieces or words, end of sentence included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.attention.layers import (
    CROSS,
    KINDS,
    Layer,
    Weights,
    group_pieces,
    kind_of,
    merge_pieces,
    with_means,
)
from compare.models.styles import OTHER, style_of
from data.vocabulary import BOS, SPECIALS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from data.vocabulary import VocabularyPair


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceAttention:
    """Attention weights of one sentence and its translation.

    In a notebook it shows itself as an interactive viewer; ``plot`` draws a figure.
    """

    source: str
    """The sentence."""
    translation: str
    """Its translation, a single line of text."""
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
    """Name of the model in titles."""
    details: str = ""
    """How good the model is, such as "BLEU 38.2, 5,000 updates", which stands beside its name."""
    color: str = style_of(OTHER).color
    """Colour of weight 1, that of the model's family."""

    @classmethod
    def of(
        cls,
        vocabularies: "VocabularyPair",
        source: str,
        tgt_ids: Sequence[int],
        weights: Mapping[str, Weights],
        *,
        label: str = "",
        color: str = style_of(OTHER).color,
    ) -> "SentenceAttention":
        """Label the weights that a model gave.

        Args:
            vocabularies: those of the model.
            source: the sentence.
            tgt_ids: ids of the translation, end of sentence included.
            weights: by name, see the class.
            label: name of the model in titles.
            color: of weight 1, as #RRGGBB.
        """
        return cls(
            source=source,
            translation=vocabularies.tgt.decode(tgt_ids),
            src=[*vocabularies.src.labels(source), SPECIALS[tgt_ids[-1]]],
            tgt=vocabularies.tgt.pieces(tgt_ids),
            kinds=(vocabularies.src.kind, vocabularies.tgt.kind),
            weights=weights,
            label=label,
            color=color,
        )

    def words(self) -> "SentenceAttention":
        """Join pieces to words: weights to the pieces of a word are added, those of its pieces averaged.

        The weights of a word are then a distribution again (Koehn and Knowles 2017, section 3.5).
        """
        (src, src_group), (tgt, tgt_group) = map(group_pieces, self.kinds, (self.src, self.tgt))
        groups = {"source": src_group, "translation": tgt_group}
        groups["translation so far"] = [0, *(1 + index for index in tgt_group[:-1])]
        merged = {}
        for name, weights in self.weights.items():
            # Which piece belongs to which word, (pieces, words), as zeros and ones.
            rows, columns = (np.eye(1 + max(groups[axis]))[groups[axis]] for axis in KINDS[kind_of(name)])
            merged[name] = merge_pieces(weights, rows, columns).astype(np.float32)
        return replace(self, src=src, tgt=tgt, kinds=("words", "words"), weights=merged)

    def layers(self) -> Iterator[Layer]:
        """Yield the layers, those of the attention to the source first."""
        names = {"source": self.src, "translation": self.tgt}
        names["translation so far"] = [SPECIALS[BOS], *self.tgt[:-1]]
        for kind, (rows, columns) in KINDS.items():
            for name, weights in self.weights.items():
                if kind_of(name) == kind:
                    yield Layer(name, weights, names[rows], names[columns])

    def plot(self, *, pieces: bool = False, self_attention: bool = False) -> "Figure":
        """Draw a heat map of every head, one row of maps per layer.

        Args:
            pieces: draw the pieces of the vocabulary instead of words.
            self_attention: also draw the attention within the source and within the translation.

        Returns:
            A matplotlib figure; its ``savefig`` writes it to a file.

        Raises:
            ValueError: the model has no such attention.
        """
        from compare.attention.heatmap import draw_heads

        shown = self if pieces else self.words()
        layers = [layer for layer in shown.layers() if self_attention or layer.kind == CROSS]
        if not layers:
            remedy = "" if self_attention or not self.weights else "; it has self-attention"
            raise ValueError(f"{self.label or 'the model'} has no attention to the source{remedy}")
        heading = ", ".join(filter(None, (self.label, self.details)))
        return draw_heads(layers, [heading, self.source, f"→ {self.translation}"], self.color)

    def to_html(self, *, pieces: bool = False) -> str:
        """Return an interactive viewer of all heads and layers as one self-contained page.

        Args:
            pieces: show the pieces of the vocabulary, not the words that they make up.
        """
        return render_viewer(self.source, [self if pieces else self.words()])

    def _repr_html_(self) -> str:
        """Return the viewer for a notebook, as an <iframe>, which shares no names with the page around it."""
        style = f"width: 100%; height: {FRAME_PIXELS}px; border: 0"
        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" title="Attention weights" style="{style}"></iframe>'


# The interactive page.


TITLES = {
    CROSS: "Attention to the source",
    "encoder": "Self-attention within the source",
    "decoder": "Self-attention within the translation",
}
"""Captions of the kinds of attention."""
FRAME_PIXELS = 500
"""Height of a notebook's frame; the script in it makes it as high as its page where it may."""


def render_viewer(source: str, models: Sequence[SentenceAttention]) -> str:
    """Return a page that shows the attention of one or more models, which runs anywhere without network.

    Args:
        source: the sentence that all translate.
        models: from left to right.
    """
    from compare.attention import viewer  # slow to import

    return viewer.render_page(
        viewer.PACKAGE,
        "viewer.html.j2",
        scripts=[viewer.read_asset(viewer.PACKAGE, viewer.VIEWER_SCRIPT), "attnbench.startPage();"],
        styles=[viewer.read_asset(viewer.PACKAGE, viewer.VIEWER_STYLE)],
        title=source,
        models=[(model, _viewers(model)) for model in models],
    )


def _viewers(model: SentenceAttention) -> list[tuple[str, dict[str, Any]]]:
    """Return for each kind of attention of a model what its axes stand for, and the data of its viewer."""
    from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer, hundredths

    found = []
    for kind, title in TITLES.items():
        layers = [layer for layer in model.layers() if layer.kind == kind]
        if not layers:
            continue
        heads, weights = with_means({layer.name: layer.weights for layer in layers})
        names = list(map(str, heads))
        last = len(names) - 1  # the widest mean
        shown = AttendedModel(name=title, heads=names, chosen=last, color=model.color)
        sentence = AttendedSentence(
            number=1, src=layers[0].columns, tgt=layers[0].rows, links=[], weights=[hundredths(weights)]
        )
        rows, columns = KINDS[kind]
        viewer = AttentionViewer(models=[shown], sentences=[sentence])
        found.append((f"Rows: {rows}; columns: {columns}.", asdict(viewer)))
    return found
