"""Interactive viewer of attention weights: its data, and pages that show sentences of one's own."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from compare.attention.layers import CROSS, KINDS, Layer, Weights, with_means
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


# Viewers of sentences, and the page that shows one sentence with several models.


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
    color: str = ""
    """Colour of weight 1, as #RRGGBB."""
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


def hundredths(weights: Weights) -> list[list[int]]:
    """Return weights (heads, T, S) in hundredths, one flat list per head."""
    found: list[list[int]] = np.rint(100 * weights).astype(int).reshape(len(weights), -1).tolist()
    return found


class ViewedModel(NamedTuple):
    """A model and its translation of the sentence that a page shows."""

    label: str
    details: str
    translation: str
    layers: Sequence[Layer]
    """May be empty."""
    color: str


def render_viewer(source: str, models: Sequence[ViewedModel]) -> str:
    """Return a page that shows the attention of one or more models, which runs anywhere without network.

    Args:
        source: the sentence that all translate.
        models: from left to right.
    """
    return render_page(
        PACKAGE,
        "viewer.html.j2",
        scripts=[read_asset(PACKAGE, VIEWER_SCRIPT), "attnbench.startPage();"],
        styles=[read_asset(PACKAGE, VIEWER_STYLE)],
        title=source,
        models=[(model, _viewers(model)) for model in models],
    )


def embed_viewer(source: str, model: ViewedModel) -> str:
    """Return the page of ``render_viewer`` as an <iframe>, which shares no names with the page around it."""
    height = FRAME_PIXELS
    for kind in {layer.kind: layer for layer in model.layers}.values():
        height += HEADING_PIXELS + LETTER_PIXELS * max(map(len, kind.columns)) + ROW_PIXELS * len(kind.rows)
    return (
        f'<iframe srcdoc="{escape(render_viewer(source, [model]), quote=True)}" title="Attention weights" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def _viewers(model: ViewedModel) -> list[tuple[str, dict[str, Any]]]:
    """Return for each kind of attention of a model what its axes stand for, and the data of its viewer."""
    found = []
    for kind, title in TITLES.items():
        layers = [layer for layer in model.layers if layer.kind == kind]
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
