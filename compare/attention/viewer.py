"""Interactive viewer of attention weights: its data, and pages that show sentences of one's own."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from compare.attention.layers import CROSS, KINDS, Layer
from data.text import visible_lines

# Render a template as one self-contained HTML file, in which only the scripts of this package run.


def render_page(
    package: str, template: str, *, scripts: Sequence[str], styles: Sequence[str], **values: Any
) -> str:
    """Render a page; text of models and data is escaped, and control characters in it are shown.

    Args:
        package: the package that holds the template.
        template: its file name.
        scripts: texts of the scripts, joined to one; the template gets it as ``script``, and as
            ``script_hash`` what a content security policy says to let no other run.
        styles: texts of the style sheets, joined to one: ``style``.
        values: what else the template prints; ``svg`` marks texts as markup.
    """
    script = "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(package)
        .get_template(template)
        .render(
            style=Markup("\n".join(styles)),
            script=Markup(script),
            script_hash=f"'sha256-{digest}'",
            svg=Markup,
            **values,
        )
    )


@cache
def read_asset(package: str, name: str) -> str:
    """Read a style sheet or a script of ``package``."""
    return (files(package) / name).read_text(encoding="utf-8")


def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.policies["json.dumps_function"] = _dump_json
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _visible(value: Any) -> Any:
    """Escape control characters in what the template prints; this package's own markup stays as it is."""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(text: str) -> Markup:
    """Let a line end after each _ and before each bracket, where a table has no space for one line."""
    return Markup("<wbr>").join(re.split(r"(?<=_)|(?= \()", visible_lines(text)))


def _dump_json(value: Any, **options: Any) -> str:
    """Serialise to JSON, in which the characters that HTML forbids are escaped."""
    return visible_lines(json.dumps(value, **options))


PACKAGE = "compare.attention"
VIEWER_SCRIPT, VIEWER_STYLE = "viewer.js", "viewer.css"
TITLES = {
    CROSS: "Attention to the source",
    "encoder": "Self-attention within the source",
    "decoder": "Self-attention within the translation",
}
"""Captions of the kinds of attention."""
ROW_PIXELS, LETTER_PIXELS, FRAME_PIXELS, HEADING_PIXELS = 22, 8, 150, 100
"""Sizes in the page, from which the height of a frame is estimated; its script corrects it where it may."""


@dataclass(frozen=True, kw_only=True)
class AttendedModel:
    """A model in the viewer."""

    name: str
    """Caption of its maps."""
    heads: Sequence[str]
    """Names of its heads and of their means; empty for a model without attention to the source."""
    chosen: int
    """Index of the head that is shown first."""
    trouble: str = ""
    """Why its attention cannot be shown."""


@dataclass(frozen=True, kw_only=True)
class AttendedSentence:
    """A sentence pair in the viewer."""

    number: int
    """Number in the choice of sentences, such as its line in the test set, from 1."""
    src: Sequence[str]
    tgt: Sequence[str]
    """The words of its columns and rows: source and translation."""
    links: Sequence[Sequence[int]]
    """Sure gold links, as pairs of indices: target word, source word."""
    weights: Sequence[Sequence[Sequence[int]]]
    """Weights in hundredths by model and head; each head's (T, S) matrix is flattened row by row."""


@dataclass(frozen=True, kw_only=True)
class AttentionViewer:
    """Models and sentences that a viewer shows."""

    models: Sequence[AttendedModel]
    sentences: Sequence[AttendedSentence]


def hundredths(weights: NDArray[np.floating[Any]]) -> list[list[int]]:
    """Return weights (heads, T, S) in hundredths, one flat list per head."""
    whole = np.rint(100 * weights).astype(int)
    found: list[list[int]] = whole.reshape(len(whole), -1).tolist()
    return found


@dataclass(frozen=True, kw_only=True)
class ViewedModel:
    """A model and its translation of the sentence that a page shows."""

    label: str
    translation: str
    layers: Sequence[Layer]
    """May be empty."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """The maps of one kind of attention of one model."""

    axes: str
    """What its rows and columns stand for."""
    viewer: AttentionViewer


def render_viewer(source: str, models: Sequence[ViewedModel], *, texts: bool = True) -> str:
    """Return a page that shows the attention of one or more models, which runs anywhere without network.

    Args:
        source: the sentence that all translate.
        models: from left to right.
        texts: whether to show the sentence, the labels and the translations, or the maps alone.
    """
    return render_page(
        PACKAGE,
        "viewer.html.j2",
        scripts=[read_asset(PACKAGE, VIEWER_SCRIPT), "attnbench.startViewers(); attnbench.fitFrame();"],
        styles=[read_asset(PACKAGE, VIEWER_STYLE)],
        title=source,
        texts=texts,
        models=[(model, _kinds(model)) for model in models],
        asdict=asdict,
    )


def embed_viewer(source: str, models: Sequence[ViewedModel], *, texts: bool = True) -> str:
    """Return the page of ``render_viewer`` as an <iframe>, which shares no names with the page around it."""
    page = escape(render_viewer(source, models, texts=texts), quote=True)
    height = sum(map(_estimate_height, models))
    return (
        f'<iframe srcdoc="{page}" title="Attention weights" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def _kinds(model: ViewedModel) -> list[_Kind]:
    """Return the kinds of attention that a model has."""
    found = []
    for kind, title in TITLES.items():
        of_kind = [layer for layer in model.layers if layer.kind == kind]
        if of_kind:
            rows, columns = KINDS[kind]
            found.append(_Kind(axes=f"Rows: {rows}; columns: {columns}.", viewer=_viewer(title, of_kind)))
    return found


def _viewer(title: str, layers: Sequence[Layer]) -> AttentionViewer:
    """Make a viewer of the heads of some layers, and of their means, which lie between the same tokens."""
    names, maps = zip(*_heads(layers), strict=True)
    model = AttendedModel(name=title, heads=names, chosen=len(names) - 1)  # the last is the widest mean
    sentence = AttendedSentence(
        number=1,
        src=layers[0].columns,
        tgt=layers[0].rows,
        links=[],
        weights=[hundredths(np.stack(maps))],
    )
    return AttentionViewer(models=[model], sentences=[sentence])


def _heads(layers: Sequence[Layer]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield name and weights of each head, of the mean of each layer, and of the mean of all layers."""
    for layer in layers:
        for number, weights in enumerate(layer.weights):
            yield f"{layer.name} head {number}", weights
    for layer in layers:
        if len(layer.weights) > 1:
            yield f"{layer.name} mean", layer.weights.mean(axis=0)
    if len(layers) > 1:
        yield f"{layers[0].kind} mean", np.concatenate([layer.weights for layer in layers]).mean(axis=0)


def _estimate_height(model: ViewedModel) -> int:
    """Estimate the height in pixels of the part of a model."""
    height = FRAME_PIXELS
    for kind in {layer.kind: layer for layer in model.layers}.values():
        letters = max(map(len, kind.columns))
        height += HEADING_PIXELS + LETTER_PIXELS * letters + ROW_PIXELS * len(kind.rows)
    return height
