"""Readers of the formats that corpora are published in: lines, .gz, columns, IWSLT's tags, WMT's segments."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from data.text.lines import BYTE_ORDER_MARK

SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")

Form = Callable[[Path], Iterator[str]]
"""Reads the sentences of a file, including blank ones, so that two files stay parallel."""


def whole_lines(path: Path) -> Iterator[str]:
    r"""Read the lines of a UTF-8 file, plain or .gz, split at ``\n`` only, without a final ``\r`` or a BOM.

    Raises:
        ValueError: a line is not UTF-8, or a .gz file is damaged.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode().removesuffix("\n").removesuffix("\r")
                yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole .gz file ({error}); delete it and download it again") from None


def tagged_lines(path: Path) -> Iterator[str]:
    """Read the training text of IWSLT, without the lines of tags such as <url> and <title>.

    Titles and descriptions are dropped, as in torchtext 0.6.0; entities such as &amp; are not decoded.
    """
    return (line.strip() for line in whole_lines(path) if not line.lstrip().startswith("<"))


def segments(path: Path) -> Iterator[str]:
    """Read the <seg> elements of the test sets of IWSLT and WMT, which are not well-formed XML.

    As in sacreBLEU, white space is reduced to single spaces and entities are not decoded.

    Raises:
        ValueError: a <seg> is not closed on its line, a line is not UTF-8, or a .gz file is damaged.
    """
    for number, line in enumerate(whole_lines(path), start=1):
        if "<seg" in line:
            match = SEGMENT.search(line)
            if match is None:
                raise ValueError(f"{path}, line {number}: <seg> without </seg>")
            yield " ".join(match[1].split())


def column(index: int) -> Form:
    """Return a reader of column ``index``, from 0, of tab-separated lines; a missing cell reads as blank."""

    def cells(path: Path) -> Iterator[str]:
        for line in whole_lines(path):
            yield (line.split("\t") + [""] * (index + 1))[index]

    return cells
