"""Sections of the page, and figures as images in it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from compare.analysis.tables import Table
from compare.report.plots import draw


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an image, and its text alternative."""

    name: str
    """id of its element."""
    title: str
    description: str
    image: str
    """The address of an SVG image that holds the image itself; no script in it could run."""
    choice: str = ""
    """Its name in a selection that shows one drawing of a section at a time; empty: always visible."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under its own heading."""

    name: str
    """id of its element."""
    title: str
    notes: Sequence[str] = ()
    """Notes: first how to read the section, then what is missing and why."""
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()


def embed_figure(figure: Figure, name: str, title: str, description: str = "", choice: str = "") -> Drawing:
    """Make a figure a part of the page.

    Args:
        figure: any figure.
        name: id of its element.
        title: short name of the drawing.
        description: what it shows, where no table beside it says so.
        choice: see ``Drawing``.
    """
    address = f"data:image/svg+xml;base64,{base64.b64encode(draw(figure, 'svg')).decode()}"
    return Drawing(name=name, title=title, description=description, image=address, choice=choice)
