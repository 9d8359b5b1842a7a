"""Lines of text: control characters, counting of words, compression, and text that stays on disk."""

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from data.files import ensure_states, file_states

# Visible forms of control characters.
#
# File names, labels, error messages and corpora may contain them. ESC becomes ``\x1b``; from DEL on, the form
# is that of JSON, ``\u202e``, so that JSON stays JSON with the same content.


_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Controls, line separators, bidirectional overrides and isolates, and what no file or XML may contain."""
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Replace every control character of one line of text by an escape sequence such as ``\x1b``."""
    return _OBEYED.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Replace control characters as ``visible`` does, except line feeds and tabs."""
    return _OBEYED.sub(lambda match: match[0] if match[0] in "\n\t" else _spell(match), text)


def _spell(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}")


# Characters that are unusual in text, by their Unicode category.


_UNUSUAL = {
    "Cs": "not text",  # invalid UTF-8 is read as these
    "Cc": "control",
    "Zl": "line break",
    "Zp": "line break",
    "Co": "private use",
    "Cn": "no character",
    "Cf": "invisible",
    "Zs": "space",
}
BROKEN = ("not text", "control", "replacement", "no character")
"""Kinds that no text has."""


@cache
def unusual_kind(character: str) -> str:
    """Name the kind of an unusual character, such as "control"; empty for others."""
    special = {" ": "", "\n": "", "\t": "space", "\ufffd": "replacement", "\xad": "invisible"}
    if character in "\x0b\x0c\r\x1c\x1d\x1e\x85":
        return "line break"
    if (
        unicodedata.bidirectional(character) not in ("BN", "", "B")
        and unicodedata.category(character) == "Cf"
    ):
        return "direction mark"
    if character in "\u200c\u200d\u3000":  # joiners of Indic scripts and emojis; the Chinese space
        return ""
    return special.get(character, _UNUSUAL.get(unicodedata.category(character), ""))


def find_unusual(lines: Sequence[str]) -> dict[str, dict[int, list[str]]]:
    """Find unusual characters by kind and index of the line."""
    unusual = {character for character in set("\n".join(lines)) if unusual_kind(character)}
    by_kind: dict[str, dict[int, list[str]]] = {}
    if unusual:
        pattern = re.compile(f"[{re.escape(''.join(unusual))}]")
        for row, line in enumerate(lines):
            for character in pattern.findall(line):
                by_kind.setdefault(unusual_kind(character), {}).setdefault(row, []).append(character)
    return by_kind


def is_broken(line: str) -> bool:
    """Return whether a line has characters that no text has."""
    return any(unusual_kind(character) in BROKEN for character in set(line))


# Characters that count as one word each.


UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and Japanese kana, for a character class of a regular expression."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def list_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines as a list; ValueError for one string or for missing values."""
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise ValueError(f"expected a list of strings, found {lines!r:.60}")
    listed = list(lines)
    for line in listed:
        if not isinstance(line, str):
            raise ValueError(f"expected a list of strings, found {line!r:.60}")
    return listed


def count_words(text: str) -> int:
    """Count words between white space; a Chinese character or Japanese kana is a word."""
    return len(_WORD.findall(text)) if _UNSPACED.search(text) else len(text.split())


class _Letters(dict[int, str | None]):
    """Map from code points to themselves, or to None for what is no letter, mark or digit."""

    def __missing__(self, code: int) -> str | None:
        self[code] = character = chr(code) if unicodedata.category(chr(code))[0] in "LMN" else None
        return character


_LETTERS = _Letters()


def letters_of(text: str) -> str:
    """Return the lower-case letters and digits, by which repeated sentences are recognised.

    A text without any is returned without outer white space.
    """
    return unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS) or text.strip()


# Reading of plain and packed files and of standard input as streams of bytes, and packing as .gz.


STDIN = Path("-")
"""The path that stands for standard input."""
BUFFER = 1 << 20
"""Bytes of read buffers."""
GZIP = b"\x1f\x8b"
PACKED: Mapping[bytes, Callable[[BinaryIO], Any]] = {
    GZIP: lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
"""Readers by the first bytes of a file."""
NOT_TEXT = {
    b"PK\x03\x04": "a zip or office file: unpack it, or save it as plain text",
    b"\xd0\xcf\x11\xe0": "an office file: save it as plain text",
    b"%PDF": "a PDF file: extract its text",
    b"%!PS": "a PostScript file: extract its text",
    b"{\\rtf": "an RTF document: save it as plain text",
    b"PAR1": "a Parquet table: write its texts line by line",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it with unzstd",
    b"7z\xbc\xaf": "packed with 7-Zip: unpack it",
    b"Rar!": "a RAR archive: unpack it",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: run `git lfs pull`",
    b"/annex/objects/": "a pointer of git-annex, not the file itself: run `git annex get`",
}
"""Other kinds of files, with their remedies, by their first bytes."""
SUFFIXES = (".gz", ".bz2", ".xz")
START_BYTES = 4_096
"""Bytes that tell the kind of a file."""
_CONTROLS = bytes({*range(9), *range(14, 27), *range(28, 32), 127})
"""Bytes that no text has; other packed and binary files have 10% of them."""
_MARKUP = re.compile(rb"\s*(?:<!--.*?-->\s*)*<[!?]?([A-Za-z][\w:.-]*)\b[^<>]*>\s*(?:\n|<|$)", re.DOTALL)


def describe_start(start: bytes, *, allow_markup: bool = False) -> str:
    """Describe a file that holds no lines of UTF-8, with a remedy, by its first bytes; else empty."""
    start = start[:START_BYTES]
    for magic, what in NOT_TEXT.items():
        if start.startswith(magic):
            return what
    if start[257:262] == b"ustar":
        return "a tar archive: unpack it"
    if encoding := _wide_encoding(start):
        return f"text in {encoding}: save it as UTF-8"
    controls = len(start) - len(start.translate(None, _CONTROLS))
    if controls > 0.03 * len(start) and (controls > 50 or not _is_utf8(start)):
        return "not a text file, since it has many control characters: unpack or convert it"
    match = None if allow_markup else _MARKUP.match(start.removeprefix(b"\xef\xbb\xbf"))
    if match is None or match[1].lower() in (b"unk", b"s", b"pad", b"bos", b"eos"):
        return ""
    return (
        f"a markup file, beginning with <{match[1].decode()}>: save its segments as plain text, one per line"
    )


def _wide_encoding(start: bytes) -> str:
    if start.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    if b"\0" not in start or (start.count(0) < 0.2 * len(start) and _is_utf8(start)):
        return ""
    for encoding, width in {"UTF-32-LE": 4, "UTF-32-BE": 4, "UTF-16-LE": 2, "UTF-16-BE": 2}.items():
        try:
            text = start[: len(start) // width * width].decode(encoding)
        except UnicodeDecodeError:
            continue
        if set(text) & {" ", "\n"} and all(c.isprintable() or c in "\t\r\n" for c in text):
            return encoding[:6]
    return ""


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def open_text(path: Path, *, any_packing: bool = False) -> Iterator[io.BufferedReader]:
    """Open a file, or ``STDIN``, and unpack .gz; with ``any_packing`` also .bz2 and .xz, by content.

    Raises:
        FileNotFoundError: there is no such file, or it is a folder.
        ValueError: a packed file is damaged or ends too early; raised while it is read.
    """
    if path == STDIN:
        stdin = cast("io.BufferedReader", sys.stdin.buffer)
        yield _unpacked(stdin, "") if any_packing else stdin
        return
    if path.is_dir():
        raise FileNotFoundError(f"{path} is a folder; name a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    with path.open("rb", buffering=BUFFER) as opened:
        file = cast("io.BufferedReader", opened)
        try:
            yield _unpacked(file, path.suffix) if any_packing or path.suffix == ".gz" else file
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            kind = path.suffix if path.suffix in SUFFIXES else "packed"
            raise ValueError(
                f"{path}: damaged or incomplete {kind} file ({error}); download or pack it again"
            ) from None


def _unpacked(file: io.BufferedReader, suffix: str) -> io.BufferedReader:
    start = file.peek(START_BYTES)
    magic = next((magic for magic in PACKED if start.startswith(magic)), b"")
    if suffix == ".gz" and not magic and not describe_start(start):
        magic = GZIP  # gzip raises a fitting error
    return io.BufferedReader(PACKED[magic](file), BUFFER) if magic else file


def plain_or_gzip(path: Path) -> Path:
    """Return ``path``, or ``path``.gz if only that exists."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not path.exists() else path


def pack_gzip(content: bytes) -> bytes:
    """Compress bytes to the same .gz file every time."""
    return gzip.compress(content, mtime=0)


def read_decompressed(path: Path) -> bytes:
    """Read a whole file and decompress a .gz."""
    with open_text(path) as file:
        return file.read()


TEXTS = (".hyp", ".json", ".jsonl", ".toml")
"""Suffixes of the texts in the folder of a run."""


def hash_decompressed(path: Path) -> str:
    """Compute the sha256 of a file's decompressed content.

    Line ends of Windows count as those of Unix in a text: Git may have changed them.
    """
    digest = hashlib.sha256()
    with open_text(path) as file:
        if Path(plain_name(path)).suffix in TEXTS:
            for line in file:
                digest.update(line.replace(b"\r\n", b"\n"))
        else:
            while chunk := file.read(BUFFER):
                digest.update(chunk)
    return digest.hexdigest()


def plain_name(path: Path) -> str:
    """Return the name of a file without the suffix of a packed one."""
    return path.stem if path.suffix in SUFFIXES else path.name


def display_name(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == STDIN else str(path)


# Reading of text line by line; malformed input raises ValueError with file and line.


TEXTS_PER_UPDATE = 100


def read_lines(path: Path, *, allow_blank: bool = False, keep_mark: bool = False) -> tuple[str, ...]:
    """Read all lines of a file into memory; see ``iter_lines`` for arguments and errors."""
    return tuple(iter_lines(path, allow_blank=allow_blank, keep_mark=keep_mark))


def iter_lines(
    path: Path,
    *,
    allow_blank: bool = False,
    keep_broken: bool = False,
    keep_mark: bool = False,
    allow_markup: bool = False,
) -> Generator[str, None, None]:
    r"""Stream the lines of a file.

    Only ``\n`` ends a line. One ``\r`` before it and a byte order mark at the start of the file are removed.

    Args:
        path: a file in UTF-8, plain, .gz, .bz2 or .xz, or "-" for standard input.
        allow_blank: yield blank lines; otherwise they raise ValueError, because they cannot be translated.
        keep_broken: decode bytes that are not UTF-8 as U+DC80 to U+DCFF; otherwise they raise ValueError.
        keep_mark: keep a byte order mark as a character of the first line.
        allow_markup: read HTML, XML and SGML, whose lines the caller takes apart.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty or of another format, a line is blank or not UTF-8, or packed data
            are damaged.
    """
    name, number = display_name(path), 0
    encoding, errors = "utf-8" if keep_mark else "utf-8-sig", "surrogateescape" if keep_broken else "strict"
    with open_text(path, any_packing=True) as file:
        if what := describe_start(file.peek(START_BYTES), allow_markup=allow_markup):
            raise ValueError(f"{name} is {what}")
        lines = io.TextIOWrapper(file, encoding, errors, newline="\n")
        try:
            for number, ended in enumerate(lines, start=1):
                line = ended.removesuffix("\n").removesuffix("\r")
                if not (allow_blank or line.strip()):
                    raise ValueError(
                        f"{name}, line {number}: the line is blank; remove this pair from both files"
                    )
                yield line
        except UnicodeDecodeError as error:
            number += 1 + error.object.count(b"\n", 0, error.start)
            raise ValueError(
                f"{name}, line {number}: 0x{error.object[error.start]:02x} is not UTF-8 ({error.reason}); "
                "save it as UTF-8, such as by iconv -f ENCODING -t UTF-8 (CP1252 from Windows; GB18030, "
                "SHIFT_JIS, KOI8-R)"
            ) from None
        finally:
            if not file.closed:  # the garbage collector may close the file before this generator
                lines.detach()  # otherwise it would close standard input
    if not number:
        raise ValueError(f"{name} is empty; expected one sentence per line")


def ensure_parallel(src: Path, src_lines: int, tgt: Path, tgt_lines: int) -> None:
    """Raise ValueError if two files differ in their number of lines."""
    if src_lines != tgt_lines:
        raise ValueError(
            f"{display_name(src)} has {src_lines} lines, but {display_name(tgt)} has {tgt_lines}: "
            "line i of one must translate line i of the other"
        )


def zip_parallel(
    src: Path, src_lines: Iterator[str], tgt: Path, tgt_lines: Iterator[str]
) -> Iterator[tuple[str, str]]:
    """Pair the lines of two files; raise ValueError if their numbers differ."""
    for number, (left, right) in enumerate(zip_longest(src_lines, tgt_lines)):
        if left is None or right is None:
            longer = number + 1 + sum(1 for _ in chain(src_lines, tgt_lines))
            counts = (number, longer) if left is None else (longer, number)
            ensure_parallel(src, counts[0], tgt, counts[1])  # always raises
        yield left, right


def hash_texts(texts: Iterable[str]) -> str:
    """Compute the sha256 of texts and their lengths: ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    remaining = iter(texts)
    while contents := [text.encode() for text in islice(remaining, TEXTS_PER_UPDATE)]:
        digest.update(b"".join([b"%d:%b" % (len(content), content) for content in contents]))
    return digest.hexdigest()


# Text that stays on disk, so that a training set may be larger than memory.


class TextFile(Sequence[str]):
    """Lines of a file, read from disk by each iteration; one block is in memory at a time.

    The constructor checks, counts and hashes them; a later change of the file is a ValueError. An index or a
    forward slice reads the file to its end.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._states = path, 0, file_states(path)
        self.sha256 = hash_texts(self._count_lines())
        """The hash of the lines by ``hash_texts``."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        with ensure_states(self._states):
            yield from iter_lines(self.path)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(len(self))))
        return next(islice(self, range(len(self))[index], None))

    def _count_lines(self) -> Iterator[str]:
        for line in self:
            self._size += 1
            yield line


def hash_lines(lines: Sequence[str]) -> str:
    """Compute ``hash_texts`` of the lines, or return that of a ``TextFile``."""
    return lines.sha256 if isinstance(lines, TextFile) else hash_texts(lines)
