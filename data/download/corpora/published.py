"""Texts as they are published (lines, .gz, columns, TED's tags, WMT's segments) to sentences, one by one."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from data.text.lines import BYTE_ORDER_MARK

SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")

Form = Callable[[Path], Iterator[str]]
"""Reads the sentences of a file, blank ones included, so that two files stay parallel."""


def whole_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or .gz, split at ``\n`` alone; a closing ``\r`` and a BOM are cut."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode().removesuffix("\n").removesuffix("\r")
                yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole .gz file ({error}); delete it, and fetch it again") from None


def tagged_lines(path: Path) -> Iterator[str]:
    """The training text of IWSLT: what stands between lines of tags such as <url> and <title>.

    Titles and descriptions go too, as in torchtext 0.6.0; entities stay as they are.
    """
    return (line.strip() for line in whole_lines(path) if not line.lstrip().startswith("<"))


def segments(path: Path) -> Iterator[str]:
    """What <seg> encloses in the test sets of IWSLT and WMT, which look like XML and are not.

    As sacreBLEU reads them: white space is reduced to single spaces, entities stay as they are.
    """
    for number, line in enumerate(whole_lines(path), start=1):
        if "<seg" in line:
            found = SEGMENT.search(line)
            if found is None:
                raise ValueError(f"{path}, line {number}: <seg> without </seg>")
            yield " ".join(found[1].split())


def column(index: int) -> Form:
    """Reads column ``index``, from 0, of lines with tabs; a line that lacks it counts as blank."""

    def cells(path: Path) -> Iterator[str]:
        for line in whole_lines(path):
            yield (line.split("\t") + [""] * (index + 1))[index]

    return cells
