"""Parts of the page: sections, and figures as inline SVG in its colours, with a text alternative."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from xml.etree import ElementTree as Tree

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from compare.report.plots import PANEL_INCHES, reproducible_svg, valid_svg
from compare.report.table import ShownTable
from data.text import visible

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
PAGE_COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}
"""CSS colours that replace black, white and the grey of frames, so that they follow the page's theme."""
REFERENCE = re.compile(r"url\(#([^)]+)\)")
DIGITS = re.compile(r"(\.\d\d)\d+")
"""Digits after the second, which nobody sees and which make half of the file."""
POINTS_PER_INCH = 72
"""Unit of the coordinates of an SVG file."""
WINDOW_PADDING = 3
"""Points around the contents of a window."""

Tree.register_namespace("", SVG)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an <svg> element, which contains its title and description."""

    name: str
    """id of its element."""
    title: str
    description: str
    svg: str
    panels: Sequence[str]
    """Windows on its parts, as <svg> elements, which a narrow page shows below each other in its place; of a
    figure with one panel, first the narrower drawing that they show."""
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
    tables: Sequence[ShownTable] = ()


def embed_figure(figure: Figure, name: str, title: str, description: str, choice: str = "") -> Drawing:
    """Make a figure a part of the page; see ``Drawing`` and ``to_svg``."""
    svg = to_svg(figure, name, title, description)
    if len(figure.axes) > 1:
        panels = list(_panels(figure, name))
    else:  # drawn again, since its letters would be too small in a narrow page
        figure.set_figwidth(PANEL_INCHES[0])
        narrow = f"{name}-narrow"
        panels = [to_svg(figure, narrow, title, description), *_panels(figure, narrow)]
    return Drawing(name=name, title=title, description=description, svg=svg, panels=panels, choice=choice)


def to_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Draw ``figure`` as an <svg> element with a text alternative.

    Args:
        figure: any figure; its black and white follow the theme of the page.
        name: prefix of all ids, so that the drawings of one page share none.
        title: short name of the drawing.
        description: text alternative for the drawing.
    """
    buffer = BytesIO()
    with reproducible_svg():
        figure.savefig(buffer, format="svg", transparent=True)
    root = Tree.fromstring(valid_svg(buffer.getvalue()))
    for tag in ("metadata", "defs"):  # the author, and a style that would apply beyond the drawing
        root.remove(root.find(f"{{{SVG}}}{tag}"))  # type: ignore[arg-type]
    _rename(root, name)
    root[0].set("id", f"{name}-figure")
    for element in root.iter():
        _restyle(element)
    _describe(root, name, title, description)
    return Tree.tostring(root, encoding="unicode")


def _panels(figure: Figure, name: str) -> Iterator[str]:
    """Yield windows on each panel of a figure that was just drawn, then on each entry of its legend."""
    figure.set_dpi(POINTS_PER_INCH)  # in which it was drawn: legends keep their positions in dots
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for axes in figure.axes:
        box = axes.get_tightbbox(renderer)
        assert box is not None
        yield _window(figure, name, box.padded(WINDOW_PADDING), "panel")
    for legend in figure.legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            assert handle is not None
            boxes = [handle.get_window_extent(renderer), text.get_window_extent(renderer)]
            yield _window(figure, name, Bbox.union(boxes).padded(WINDOW_PADDING), "entry")


def _window(figure: Figure, name: str, box: Bbox, kind: str) -> str:
    """Return an <svg> element that shows the part of a drawing in ``box``, in points from below."""
    y = figure.get_figheight() * POINTS_PER_INCH - box.y1
    return (
        f'<svg class="{kind}" viewBox="{box.x0:.1f} {y:.1f} {box.width:.1f} {box.height:.1f}" '
        f'style="max-width: {box.width * 4 / 3:.0f}px"><use href="#{name}-figure"/></svg>'
    )


def _rename(root: Tree.Element, name: str) -> None:
    """Prefix every referenced id with ``name``, and remove all others."""
    used = set(
        REFERENCE.findall(" ".join(value for element in root.iter() for value in element.attrib.values()))
    )
    used |= {element.attrib[f"{{{XLINK}}}href"][1:] for element in root.iter(f"{{{SVG}}}use")}
    for element in root.iter():
        identifier = element.attrib.pop("id", None)
        if identifier in used:
            element.set("id", f"{name}-{identifier}")
        if target := element.attrib.pop(f"{{{XLINK}}}href", None):
            element.set("href", f"#{name}-{target[1:]}")
        for key, value in element.attrib.items():
            element.set(key, REFERENCE.sub(rf"url(#{name}-\1)", value))


def _restyle(element: Tree.Element) -> None:
    """Leave colours and fonts to the page, and round coordinates."""
    style = re.sub(r"\s*font-family:[^;]*;?", "", element.attrib.get("style", ""))
    for colour, page_colour in PAGE_COLOURS.items():
        style = style.replace(colour, page_colour)
    if style:
        element.set("style", style)
    for key in {"d", "x", "y", "transform", "width", "height"} & element.attrib.keys():
        element.set(key, DIGITS.sub(r"\1", " ".join(element.attrib[key].split())))
    element.tail = None
    if element.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}tspan"):
        element.text = None


def _describe(root: Tree.Element, name: str, title: str, description: str) -> None:
    """Make the drawing one image for screen readers, as large as the box around it."""
    del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    root.set("fill", "currentColor")
    for index, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = Tree.Element(f"{{{SVG}}}{tag}", {"id": f"{name}-{tag}"})
        element.text = visible(text)
        root.insert(index, element)
