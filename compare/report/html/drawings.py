"""Matplotlib figures as drawings inside a page: they take its colours, and say in words what they show."""

import re
from io import BytesIO
from xml.etree import ElementTree as Tree

from matplotlib.figure import Figure

from compare.report.html.parts import Drawing
from compare.report.plots.plots import reproducible_svg

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
PAGE_COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}
"""Black, white and the grey of frames become those of the page, light or dark."""
REFERENCE = re.compile(r"url\(#([^)]+)\)")
DIGITS = re.compile(r"(\.\d\d)\d+")
"""Hundredths of a point are more than anyone sees, and half of the file without this."""

Tree.register_namespace("", SVG)


def embed_figure(figure: Figure, name: str, title: str, description: str, choice: str = "") -> Drawing:
    """A figure as a part of the page; see ``Drawing`` and ``to_svg``."""
    svg = to_svg(figure, name, title, description)
    return Drawing(name=name, title=title, description=description, svg=svg, choice=choice)


def to_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Draw ``figure`` as an <svg> element with a text alternative.

    Args:
        figure: any; what is black or white in it follows the theme of the page.
        name: begins each id of the drawing, so that drawings of one page share none.
        title: what it is, in a few words.
        description: what one sees in it.
    """
    buffer = BytesIO()
    with reproducible_svg():
        figure.savefig(buffer, format="svg", bbox_inches="tight", transparent=True)
    root = Tree.fromstring(buffer.getvalue())
    for tag in ("metadata", "defs"):  # who made it, and a style that would reach beyond the drawing
        root.remove(root.find(f"{{{SVG}}}{tag}"))  # type: ignore[arg-type]
    _rename(root, name)
    for element in root.iter():
        _restyle(element)
    _describe(root, name, title, description)
    return Tree.tostring(root, encoding="unicode")


def _rename(root: Tree.Element, name: str) -> None:
    """Let ``name`` begin every id that is referred to, and take away all others."""
    used = set(
        REFERENCE.findall(" ".join(value for element in root.iter() for value in element.attrib.values()))
    )
    used |= {element.attrib[f"{{{XLINK}}}href"][1:] for element in root.iter(f"{{{SVG}}}use")}
    for element in root.iter():
        found = element.attrib.pop("id", None)
        if found in used:
            element.set("id", f"{name}-{found}")
        if target := element.attrib.pop(f"{{{XLINK}}}href", None):
            element.set("href", f"#{name}-{target[1:]}")
        for key, value in element.attrib.items():
            element.set(key, REFERENCE.sub(rf"url(#{name}-\1)", value))


def _restyle(element: Tree.Element) -> None:
    """Leave colours and fonts to the page, and shorten what is longer than need be."""
    style = re.sub(r"\s*font-family:[^;]*;?", "", element.attrib.get("style", ""))
    for colour, of_page in PAGE_COLOURS.items():
        style = style.replace(colour, of_page)
    if style:
        element.set("style", style)
    for key in {"d", "x", "y", "transform", "width", "height"} & element.attrib.keys():
        element.set(key, DIGITS.sub(r"\1", " ".join(element.attrib[key].split())))
    element.tail = None
    if element.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}tspan"):
        element.text = None


def _describe(root: Tree.Element, name: str, title: str, description: str) -> None:
    """Make the drawing one image to those who hear the page; its size is that of its box."""
    del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    root.set("fill", "currentColor")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = Tree.Element(f"{{{SVG}}}{tag}", {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(place, element)
