"""Heat maps of attention weights: one map per head, one row of maps per layer; they need no display."""

import textwrap
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from data.files import warn_once

CELL_INCHES = 0.27
"""Side of a cell, for tokens at 9 points."""
SMALL_CELL_INCHES = 0.21
"""Side of a cell of several maps, for tokens at 7 points."""
POINTS_PER_INCH = 72
NAME_INCHES = 0.3
"""Space for the name of an axis or a map."""
GAP_INCHES = 0.2
TITLE_POINTS = 10
MIN_WIDTH_INCHES = 4.5
"""Least width of a figure, for its title."""


@contextmanager
def plain_style() -> Iterator[None]:
    """Draw with matplotlib's defaults, whatever the user's matplotlibrc or notebook has set."""
    with mpl.rc_context({name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}):
        yield


class HeatMaps(Figure):
    """A figure that a notebook shows without pyplot."""

    @plain_style()
    def _repr_png_(self) -> bytes:
        return render_figure(self, format="png")


@plain_style()
def draw_heads(
    layers: Sequence[tuple[Sequence[object], NDArray[Any]]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: Sequence[str],
    color: str,
) -> Figure:
    """Draw all heads and their mean by layer, as shades from 0 (white) to 1 (``color``).

    A layer has names and weights (maps, T, S). ``rows`` are the T tokens of the translation, ``columns`` the
    S tokens of the source, ``title`` texts above the maps.
    """
    shades = LinearSegmentedColormap.from_list("", ["#FFFFFF", color])
    several = len(layers) > 1 or len(layers[0][0]) > 1
    cell = SMALL_CELL_INCHES if several else CELL_INCHES
    points = round(cell * POINTS_PER_INCH * 0.47)
    left, above = NAME_INCHES + _label_inches(rows, points), NAME_INCHES + _label_inches(columns, points)
    map_width, map_height = cell * len(columns), cell * len(rows)
    most = max(len(heads) for heads, _ in layers)
    width = max(left + (map_width + GAP_INCHES) * most + 2 * NAME_INCHES, MIN_WIDTH_INCHES)
    heading = _wrap(title, width)
    top = (heading.count("\n") + 2) * 1.3 * TITLE_POINTS / POINTS_PER_INCH
    layer_height = above + map_height + NAME_INCHES
    height = top + layer_height * len(layers)
    figure = HeatMaps(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.1 / height, heading, va="top", fontsize=TITLE_POINTS, parse_math=False)
    for layer, (heads, weights) in enumerate(layers):
        bottom = height - top - layer_height * (layer + 1) + NAME_INCHES
        for position, head in enumerate(heads):
            x = left + (map_width + GAP_INCHES) * position
            axes = figure.add_axes((x / width, bottom / height, map_width / width, map_height / height))
            _draw_map(axes, weights[position], rows if position == 0 else [], columns, points, shades)
            below = -0.1 / map_height
            axes.text(0, below, str(head), va="top", fontsize=points + 1, transform=axes.transAxes)
    first = figure.axes[0]
    inches = min(map_height, 2)
    y = first.get_position().y1 - inches / height
    scale = figure.add_axes((1 - 0.45 / width, y, 0.12 / width, inches / height))
    figure.colorbar(first.images[0], cax=scale, ticks=[0, 0.5, 1]).ax.tick_params(labelsize=8, length=2)
    return figure


def _draw_map(
    axes: Axes,
    weights: NDArray[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    points: int,
    shades: Colormap,
) -> None:
    axes.imshow(weights, cmap=shades, vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    size: dict[str, Any] = {"fontsize": points, "parse_math": False}
    axes.set_xticks(range(len(columns)), columns, rotation=90, **size)
    axes.set_yticks(range(len(weights)), rows, **size)
    axes.set_xticks(np.arange(len(columns) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(weights) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("source", fontsize=points + 1, style="italic")
    if rows:
        axes.set_ylabel("translation", fontsize=points + 1, style="italic")


def _wrap(texts: Sequence[str], width: float) -> str:
    characters = int(width * POINTS_PER_INCH / (0.6 * TITLE_POINTS))
    return "\n".join(line for text in texts for line in textwrap.wrap(text, characters))


def _label_inches(labels: Sequence[str], points: int) -> float:
    ems = (sum(1.1 if unicodedata.east_asian_width(c) in "WF" else 0.65 for c in label) for label in labels)
    return 0.05 + max(ems) * points / POINTS_PER_INCH


# Fonts for the characters of all languages.


def render_figure(figure: Figure, **options: Any) -> bytes:
    """Return the image of ``savefig``, with fonts that have its characters where possible."""

    def save() -> tuple[bytes, bool]:  # the image, and True if characters are missing
        buffer = BytesIO()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            figure.savefig(buffer, **options)
        return buffer.getvalue(), any("missing from font" in str(warning.message) for warning in caught)

    content, is_lacking = save()
    if is_lacking:
        texts = figure.findobj(Text)
        families = find_fonts(frozenset("".join(text.get_text() for text in texts)))
        for text in texts:
            text.set_fontfamily(families)
        content, _ = save()
    return content


@cache
def find_fonts(characters: frozenset[str]) -> list[str]:
    """Return names of fonts that have the characters; warn of scripts without a font."""
    default = font_manager.findfont(font_manager.FontProperties())
    families = [font_manager.get_font(default).family_name]
    missing = {character for character in characters if character.isprintable()} - _characters_of(default)
    fonts = sorted(font_manager.findSystemFonts()) if missing else []
    while best := max(fonts, key=lambda font: len(_characters_of(font) & missing), default=""):
        if not (covered := _characters_of(best) & missing):
            break
        font_manager.fontManager.addfont(best)  # matplotlib's list may be older than the font
        families.append(font_manager.get_font(best).family_name)
        missing -= covered
    letters = set(filter(str.isalpha, missing)) or missing  # a script's punctuation comes with its letters
    for script in sorted({unicodedata.name(letter, "unnamed").split()[0] for letter in letters}):
        is_cjk = script in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
        warn_once(
            f"no font on this machine has {script} characters, so pictures show boxes: install one, such as "
            f"Noto (package fonts-noto-{'cjk' if is_cjk else 'core'} on Debian and Ubuntu); the viewer and "
            "SVG files use the reader's fonts"
        )
    return families


@cache
def _characters_of(font: str) -> set[str]:
    try:
        return set(map(chr, font_manager.get_font(font).get_charmap()))
    except (OSError, RuntimeError):
        return set()
