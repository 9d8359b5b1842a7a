"""Interactive viewer of attention weights: its data, and pages that show sentences of one's own."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

# Render a template as one self-contained HTML file, in which only the scripts of this package run.


PACKAGE = "compare.attention"


def render_page(
    package: str, template: str, *, scripts: Sequence[str], styles: Sequence[str] = (), **values: Any
) -> str:
    """Render a page with the viewer; text of models and data is escaped.

    Args:
        package: the package that holds the template.
        template: its file name.
        scripts: texts of scripts that follow the viewer's; the template gets all of them as ``script``,
            and ``script_hash`` for a content security policy that lets no other script run.
        styles: texts of style sheets that follow the viewer's; the template gets all of them as ``style``.
        values: other values that the template prints.
    """
    script = "\n".join([read_asset(PACKAGE, "viewer.js"), *scripts])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(package)
        .get_template(template)
        .render(
            style=Markup("\n".join([read_asset(PACKAGE, "viewer.css"), *styles])),
            script=Markup(script),
            script_hash=f"'sha256-{digest}'",
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
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _breakable(text: str) -> Markup:
    """Let a line end after each _ and before each bracket, where a table has no space for one line."""
    return Markup("<wbr>").join(re.split(r"(?<=_)|(?= [([])", text))


# The data of a viewer.


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


def hundredths(weights: NDArray[Any]) -> list[list[int]]:
    """Return weights (heads, T, S) in hundredths, one flat list per head."""
    rounded: list[list[int]] = np.rint(100 * weights).astype(int).reshape(len(weights), -1).tolist()
    return rounded
