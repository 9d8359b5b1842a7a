"""Form of a text: features that many of its lines have and a similar text does not.

Translations are compared with references, and test sets with the training set. A text alone is searched for
forms that plain text never has.
"""

import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from data.text import UNSPACED as UNSPACED_CHARACTERS

if TYPE_CHECKING:
    from data.corpus import Corpus

SAMPLE_LINES = 3_000
"""Lines by which a text is described."""
MIN_SHARE = 0.01
"""Smallest share of lines worth a warning."""
MIN_LINES = 5
"""Lines with a sign to expect in the other text before their absence counts."""
FACTOR = 5
"""Factor on both limits for signs that follow the subject: words, letters, neighbours, absences."""
WORD_SHARE = 0.3
"""Smallest share for words and punctuation, which weak models choose wrongly."""
OTHER_LINES = 5
"""Further factor where the texts are of different sentences."""
RARE = 20
"""A sign that is this many times rarer in the other text counts as absent there."""
USUAL = 0.9
"""Share of lines from which a beginning or an end is the rule; half of it breaks the rule."""
SAME_LINES = 0.7
"""Signs whose lines overlap by this share are reported as one."""


# Signs of a line.


Sign = tuple[str, str]
"""Kind, one of ``KINDS``, and value."""
KINDS = ("form", "character", "end", "first word", "last word", "word", "beside")
"""Kinds of signs; of several on the same lines, the first tells most."""


class _Shapes(dict[int, str]):
    """Map from code points to shapes: A capital, a small letter, 字 other letter, 0 digit, else itself."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        shapes = {"Lu": "A", "Lt": "A", "Lo": "字", "L": "a", "N": "0", "M": ""}
        self[code] = shape = shapes.get(category, shapes.get(category[0], chr(code)))
        return shape


_SHAPES = _Shapes()
_LETTERS = frozenset("Aa字0")
UNSPACED = "text without spaces"
NOT_NFC = "not Unicode NFC"
LONE_LETTERS = "letters one by one"
TOKENISED = "a space before a full stop or comma"
PLAIN_LACKS: Mapping[str, re.Pattern[str]] = {
    TOKENISED: re.compile(r" [.,。，、](?<=\w [.,。，、])(?= |$)"),
    "words in angle brackets": re.compile(r"<[^<>\s]+>"),
    "HTML entities": re.compile(r"&(?:[A-Za-z]{2,8}|#\d{1,7}|#x[\da-fA-F]{1,6});"),
    "codes of characters": re.compile(
        r"\\u[\da-fA-F]{4}|\\x[\da-fA-F]{2}|(?:%[\dA-F]{2}){2}|(?:=[\dA-F]{2}){2}"
    ),
    "lost characters": re.compile("[\ufffd\u2047\udc80-\udcff]"),
    UNSPACED: re.compile(f"[{UNSPACED_CHARACTERS}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
}
"""By name: patterns that plain text lacks, or that spaces do not divide into words."""
ENDS: Mapping[str, re.Pattern[str]] = {
    "a capital letter first": re.compile("[^Aa字0]*A"),
    "a number first": re.compile(r"[^Aa字0\s]*(?:[Aa][^Aa字0\s]+)?0\S*\s"),
    "a number last": re.compile(r".*\s[^Aa字0\s]*0[^Aa字\s]*$"),
    "punctuation last": re.compile(r".*[^Aa字0\s]$"),
    "a space first or last": re.compile(r"\s|.*\s$"),
}
"""By name: patterns of how the shape of a line begins or ends."""
SHAPES = {"capital letters": "A", "small letters": "a", "digits": "0", "spaces": " "}
"""By name: a character of the shape."""
BEYOND_ASCII = "letters beyond ASCII"
COMPATIBLE = "characters such as ½, ﬁ or full-width ones"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_ENCODINGS = [
    "cp1252",
    "latin-1",
    "mac-roman",
    "cp1250",
    "cp1251",
    "cp1254",
    "cp437",
    "cp850",
    "koi8-r",
    "gbk",
]


def plain_forms(line: str) -> set[str]:
    """Name the forms of a line that plain text does not have."""
    names = {name for name, pattern in PLAIN_LACKS.items() if pattern.search(line)}
    names |= {_cut(sign) for sign, style in PIECES.items() if sign in line and style.cut.search(line)}
    words = line.split()
    if len(words) > FACTOR and 2 * sum(len(word) == 1 and word.isalpha() for word in words) > len(words):
        names.add(LONE_LETTERS)
    if not line.isascii():
        encodings = {_wrong_encoding(run) for run in _NOT_ASCII.findall(line)}
        if len(encodings) == 1 and (encoding := encodings.pop()):
            names.add(_misread(encoding))
        if not unicodedata.is_normalized("NFC", line):
            names.add(NOT_NFC)
    return names


def _signs(line: str) -> set[Sign]:
    shape, words = line.translate(_SHAPES), line.split()
    forms = plain_forms(line) | {name for name, sign in SHAPES.items() if sign in shape.strip()}
    if not line.isascii():
        forms.update(f"{script} letters" for script in set(map(_script, line)) - {""})
        if any(character > "\x7f" and character.isalpha() for character in line):
            forms.add(BEYOND_ASCII)
        if unicodedata.normalize("NFKC", line) != unicodedata.normalize("NFC", line):
            forms.add(COMPATIBLE)
    values: dict[str, Iterable[str]] = {
        "form": forms,
        "end": [name for name, pattern in ENDS.items() if pattern.match(shape)],
        "character": line,
        "first word": words[:1],
        "last word": words[-1:],
        "word": words,
        "beside": map("".join, pairwise(shape)),
    }
    return {(kind, value) for kind in KINDS for value in values[kind]}


@cache
def _script(character: str) -> str:
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""


def _misread(encoding: str) -> str:
    return f"UTF-8 that was read as {encoding}"


@cache
def _wrong_encoding(run: str) -> str:
    """Return the encoding in which UTF-8 was read, if that explains these characters."""
    for encoding in _ENCODINGS if len(run) > 1 else ():
        try:  # Windows reads the bytes that CP1252 does not define as the controls of Latin-1
            content = b"".join(bytes([ord(c)]) if "\x80" <= c < "\xa0" else c.encode(encoding) for c in run)
            restored = content.decode()
        except UnicodeError:
            continue
        if len(restored) < len(run) and restored.isprintable():
            return encoding
    return ""


# Texts that are cut into pieces of words.


class _Style(NamedTuple):
    cut: re.Pattern[str]
    joins: Sequence[tuple[str, str]]


PIECES: Mapping[str, _Style] = {
    "@@": _Style(re.compile(r"\S@@(?: |$)"), [("@@(?: |$)", "")]),
    "##": _Style(re.compile(r"(?:^| )##\w"), [(r"(?:^| )##(?=\S)", "")]),
    "￭": _Style(re.compile(r"\S￭(?: |$)|(?:^| )￭\S"), [(" ?￭ ?", "")]),
    "</w>": _Style(re.compile(r"\S</w>"), [(" ", ""), ("</w>", " ")]),
    "▁": _Style(re.compile("▁"), [(" ", ""), ("▁", " ")]),
}
"""By the sign of pieces of words: subword-nmt, BERT, OpenNMT, fastBPE, SentencePiece."""


def _cut(sign: str) -> str:
    return f"pieces of words ({sign})"


CUT = frozenset(map(_cut, PIECES))
"""Forms that ``join_pieces`` undoes."""


def piece_sign(lines: Iterable[str]) -> str:
    """Return the key of ``PIECES`` that most lines have; empty if none has one."""
    counts = Counter(
        sign for line in lines for sign, style in PIECES.items() if sign in line and style.cut.search(line)
    )
    return max(counts, key=counts.__getitem__, default="")


def join_pieces(text: str, sign: str) -> str:
    """Join pieces of words: "rid@@ ing" by the sign "@@" to "riding"."""
    if not sign:
        return text
    for pattern, replacement in PIECES[sign].joins:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def _symbols_beside_letters(line: str) -> set[str]:
    shape = f" {line.translate(_SHAPES)} "
    return {
        symbol
        for left, symbol, right in zip(shape, shape[1:], shape[2:], strict=False)
        if unicodedata.category(symbol) in ("Sm", "Sk", "So", "Pc", "Co")
        and not _LETTERS.isdisjoint((left, right))
    }


# Description of one text, and comparison of two.


class Finding(NamedTuple):
    """A form that many lines of a text have, or lack."""

    form: str
    lines: int
    total: int
    remedy: str
    than: str = ""
    """How often the other text has it."""

    @property
    def most(self) -> bool:
        """True if most lines have it."""
        return 2 * self.lines > self.total

    def __str__(self) -> str:
        return f"{self.form} in {self.lines:,} of {self.total:,} lines{self.than}: {self.remedy}"


def _sample(lines: Sequence[str]) -> Sequence[str]:
    return lines[:: max(1, len(lines) // SAMPLE_LINES)]


def describe_text(lines: Sequence[str], *, unspaced: bool = True) -> list[Finding]:
    """List forms that many lines of a text have and plain text does not.

    ``unspaced``: list a script without spaces, too.
    """
    sample = _sample(lines)
    findings = _plain_findings(sample, unspaced=unspaced)
    if any(finding.form != UNSPACED for finding in findings):
        return findings  # symbols of these forms would be listed again
    beside = Counter(chain.from_iterable(map(_symbols_beside_letters, sample)))
    return findings + [
        Finding(f"{symbol!r} beside letters", count, len(sample), remedy_of(symbol))
        for symbol, count in sorted(beside.items())
        if count >= 2 * FACTOR * MIN_SHARE * len(sample)
    ]


def _plain_findings(sample: Sequence[str], *, unspaced: bool) -> list[Finding]:
    counts = Counter(chain.from_iterable(map(plain_forms, sample)))
    beyond_ascii = sum(not line.isascii() for line in sample)
    least = {UNSPACED: len(sample) / 2 if unspaced else len(sample) + 1}
    least |= {form: beyond_ascii / 2 for form in counts if form.startswith(_misread(""))}
    return [
        Finding(form, count, len(sample), remedy_of(form))
        for form, count in sorted(counts.items())  # a set has another order in each process
        if count >= least.get(form, MIN_SHARE * len(sample))
    ]


def compare_texts(
    text: Sequence[str], other: Sequence[str], name: str, *, same_sentences: bool = True
) -> list[Finding]:
    """List signs that many lines of a text have, or lack, unlike another text of its language.

    ``name`` is that of the other text, such as "references"; ``same_sentences`` in any number and order.
    """
    texts, findings = (_sample(text), _sample(other)), list[Finding]()
    counts = [Counter(chain.from_iterable(map(_signs, sample))) for sample in texts]
    size, other_size = map(len, texts)
    for missing in (False, True):
        having, lacking = counts[::-1] if missing else counts
        sizes = (other_size, size) if missing else (size, other_size)
        notable = [
            sign
            for sign, count in having.items()
            if _is_notable(sign, (count, lacking[sign]), sizes, missing=missing, same=same_sentences)
        ]
        if missing:
            notable = [sign for sign in notable if _is_widespread(sign, texts[1])]
        for sign in _merge(notable, texts[missing], missing=missing):
            count, other_count = (counter[sign] for counter in counts)
            than = f", but in {other_count:,} of {other_size:,} of the {name}"
            remedy = remedy_of(f"no {sign[1]}" if missing else sign[1])
            findings.append(Finding(_spell(*sign, texts[missing]), count, size, remedy, than))
    return findings


def describe_beside(
    lines: Sequence[str], train: Sequence[str] = (), *, unspaced: bool = True
) -> list[Finding]:
    """List the forms of a text, with those that the training set does not have; each form only once."""
    findings = describe_text(lines, unspaced=unspaced)
    if train:
        findings += compare_texts(lines, train, "training set", same_sentences=False)
    return list({finding.form: finding for finding in findings}.values())


def _is_general(form: str) -> bool:
    return form in SHAPES or form in (COMPATIBLE, BEYOND_ASCII)


MAX_FINDINGS = 5
"""Findings listed in each direction."""


def _is_notable(
    sign: Sign, counts: tuple[int, int], sizes: tuple[int, int], *, missing: bool, same: bool
) -> bool:
    kind, value = sign
    share, other_share = (count / max(size, 1) for count, size in zip(counts, sizes, strict=True))
    if kind == "end":
        return min(sizes) >= 4 * MIN_LINES and share >= USUAL and other_share <= USUAL / 2
    of_text = kind == "form" and _is_general(value)
    if missing and not (of_text if kind == "form" else kind == "character" and not _is_plain(value)):
        return False
    is_style = kind in KINDS[3:] or (kind == "character" and value.isalnum()) or of_text
    factor = (FACTOR if missing or is_style else 1) * (1 if same else OTHER_LINES)
    is_of_sentence = kind.endswith("word") or (kind != "form" and not set(".,;:?!").isdisjoint(value))
    least = max(factor * MIN_SHARE, WORD_SHARE * is_of_sentence)
    expected = min(counts[0], share * sizes[1])
    return share >= least and expected >= factor * MIN_LINES and other_share <= share / RARE


def _is_plain(character: str) -> bool:
    # Letters such as ß and é may be spelt otherwise, but not those of scripts without cases.
    return character.isalnum() and (character.isascii() or character.lower() == character.upper())


def _is_widespread(sign: Sign, lines: Sequence[str]) -> bool:
    # A weak model may lack every word with a letter.
    kind, character = sign
    if kind != "character" or not character.isalnum():
        return True
    words = (re.findall(rf"\w*{character}\w*", line) for line in lines if character in line)
    return len(set(chain.from_iterable(words))) >= 2 * MIN_LINES


def _merge(signs: Sequence[Sign], sample: Sequence[str], *, missing: bool) -> list[Sign]:
    rows: dict[Sign, set[int]] = {sign: set() for sign in signs}
    for row, line in enumerate(sample if signs else ()):
        for sign in _signs(line) & rows.keys():
            rows[sign].add(row)
    merged: list[Sign] = []

    def rank(sign: Sign) -> tuple[float, int, str]:
        kind, value = sign
        is_detail = {"form": _is_general(value) and not missing, "character": value.isalnum()}
        position = KINDS.index("beside") - 0.5 if is_detail.get(kind) else KINDS.index(kind)
        return position, -len(rows[sign]), value

    def is_told(sign: Sign, by: Sign) -> bool:
        kind, value = sign
        is_detail = (
            kind in KINDS[3:] or value.isalnum() or (by[1].startswith(_misread("")) and by[0] == "form")
        )
        lines = rows[sign] if is_detail else rows[sign] | rows[by]
        return len(rows[sign] & rows[by]) >= SAME_LINES * len(lines)

    for sign in sorted(signs, key=rank):
        if not any(is_told(sign, other) for other in merged):
            merged.append(sign)
    return sorted(merged, key=lambda sign: -len(rows[sign]))[:MAX_FINDINGS]


def _spell(kind: str, value: str, sample: Sequence[str]) -> str:
    if kind in ("form", "end"):
        return value
    if kind == "character":
        words = (word for line in sample if value in line for word in line.split() if value in word)
        example = next(words, value)
        return f"{value!r}" if example == value else f"{value!r} (as in {example!r:.40})"
    if kind == "beside":
        names = {"A": "a capital letter", "a": "a letter", "字": "a letter", "0": "a digit", " ": "a space"}
        left, right = (names.get(shape, repr(shape)) for shape in value)
        return f"{left} before {right}"
    return f"the {kind} {value!r:.40}"


REMEDIES: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))[
    "remedies"
]
"""By form or character, how to undo it; "no " stands before missing ones."""


def remedy_of(form: str) -> str:
    """Return how to undo a form of text."""
    if form in CUT:
        return 'join the pieces, as vocabulary.kind = "given" does'
    if form.startswith(_misread("")):
        return f"line.encode({form.rpartition(' ')[2]!r}).decode() undoes it"
    other = (
        "is the text in another language?" if form.endswith(" letters") else "give both texts the same form"
    )
    return REMEDIES.get(form, other)


# Order, length and repetition of lines.


def distinct_lines(lines: Sequence[str]) -> float:
    """Return the share of different lines; every blank line counts as a different one."""
    full = [line for line in lines if line.strip()]
    return 1 - (len(full) - len(set(full))) / max(len(lines), 1)


def repeats_phrase(line: str) -> bool:
    """Return whether a phrase of up to eight words stands three times or more in a row.

    Text without spaces has a phrase of two to twenty characters four times.
    """
    words, shortest, longest, times = line.split(), 1, 8, 3
    if len(line) > 8 * len(words) and PLAIN_LACKS[UNSPACED].search(line):
        words, shortest, longest, times = list(line), 2, 20, 4
    for period in range(shortest, min(longest, len(words) // times) + 1):
        equal = 0
        for i in range(period, len(words)):
            equal = equal + 1 if words[i] == words[i - period] else 0
            if equal >= (times - 1) * period and any(map(str.isalpha, "".join(words[i - period : i]))):
                return True
    return False


class Order(NamedTuple):
    """Displacement of the lines of a text against the most similar lines of another."""

    shift: int
    """Most frequent displacement, apart from 0: line i resembles line i + shift."""
    share: float
    """Share of the lines with this displacement."""
    unmoved: float
    """Share of the lines that resemble line i most."""
    close: float
    """Share of the lines that have at least half of their rare words in common with that line."""


def measure_order(text: Sequence[str], other: Sequence[str]) -> Order:
    """Find for each line the line of another text with which it shares the rarest words."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, line in enumerate(other):
        for word in set(line.split()):
            rows[word].append(row)
    rare = {
        word: log(len(other) / len(at)) for word, at in rows.items() if len(at) <= max(2, len(other) // 10)
    }
    displacements, close = Counter[int](), 0
    for row in range(0, len(text), max(1, len(text) // 1_000)):
        likeness: dict[int, float] = defaultdict(float)
        words = sorted(set(text[row].split()))  # in one order, so that the sums are the same in each process
        for word in words:
            for at in rows[word] if word in rare else ():
                likeness[at] += rare[word]
        if likeness:
            best = max(likeness.values())
            displacements[min((at - row for at, value in likeness.items() if value == best), key=abs)] += 1
            close += 2 * best >= sum(rare.get(word, log(len(other))) for word in words)
    total = displacements.total()
    if total < 4 * MIN_LINES:
        return Order(0, 0.0, 1.0, 0.0)
    unmoved = displacements.pop(0, 0)
    shift, count = (displacements.most_common(1) or [(0, 0)])[0]
    return Order(shift, count / total, unmoved / total, close / total)


OTHER_ORDER = 0.1
"""Share of lines that proves a displacement; with less at home, the sentences are others."""
DISTINCT = 0.9
"""Share of different lines, relative to the references, below which translations repeat each other."""
LENGTHS = (0.5, 2.0)
"""Usual range of characters per character of the references."""


def describe_translations(
    lines: Sequence[str], *references: Sequence[str], unspaced: bool = True
) -> list[str]:
    """List warnings about translations as a text: form, order, length, blanks, repetition.

    ``unspaced``: name a script without spaces, too.
    """
    compared = compare_texts(lines, list(chain(*zip(*references, strict=True))), "references")
    plain = _plain_findings(_sample(lines), unspaced=unspaced)
    findings = {finding.form: finding for finding in [*plain, *compared]}
    warnings, size = list(map(str, findings.values())), len(lines)
    blank = sum(not line.strip() for line in lines)
    if blank > MIN_SHARE * size:
        warnings.append(f"{blank:,} of {size:,} lines are blank: were they lost?")
    repetition = min((describe_repetition(lines, reference) for reference in references), key=len)
    warnings += repetition
    orders = [measure_order(lines, reference) for reference in references]
    order = max(orders, key=lambda order: order.unmoved)
    least = max(OTHER_ORDER, 2 * MIN_LINES / max(size, 1))  # a few lines of a short text agree by chance
    if order.share > least:
        warnings.append(
            f"{order.share:.0%} of the lines resemble reference i{order.shift:+} instead of i: was a line "
            "lost or added?"
        )
    elif order.unmoved < OTHER_ORDER and order.close > 0.5 and not repetition:
        warnings.append(
            f"{order.close:.0%} of the lines closely resemble a reference, but only {order.unmoved:.0%} "
            "the one in the same line: put them in the order of the references"
        )
    length = len("".join(lines)) / max(1, min(len("".join(reference)) for reference in references))
    if not LENGTHS[0] <= length <= LENGTHS[1]:
        warnings.append(
            f"{length:.2f} characters per character of the references: are they the same sentences?"
        )
    return warnings


def describe_repetition(lines: Sequence[str], other: Sequence[str]) -> list[str]:
    """List how often translations repeat themselves and each other, more than ``other`` does."""
    size, warnings = len(lines), []
    repeated = sum(map(repeats_phrase, lines))
    if repeated > max(MIN_SHARE * size, 2 * sum(map(repeats_phrase, other))):
        warnings.append(f"a phrase occurs three times in a row in {repeated:,} of {size:,} lines")
    if size >= 4 * MIN_LINES and distinct_lines(lines) < DISTINCT * distinct_lines(other):
        warnings.append(f"only {round(distinct_lines(lines) * size):,} of {size:,} lines are different")
    return warnings


# Description of a corpus.


def describe_corpus(corpus: "Corpus", kind: str, *, unspaced: bool = True) -> list[str]:
    """List warnings about a corpus: repeated sources, and the form of its texts.

    ``unspaced``: BLEU's tokenizer needs spaces between the words of targets. Raises ValueError if most of the
    text is cut into pieces and the vocabulary ``kind`` is not "given".
    """
    warnings = []
    for split, count in corpus.overlaps().items():
        warnings.append(f"{count} of {len(corpus.splits[split].src)} sources of {split} also occur in train")
    samples = {split: (_sample(pairs.src), _sample(pairs.tgt)) for split, pairs in corpus.splits.items()}
    for side, language in enumerate((corpus.src_lang, corpus.tgt_lang)):
        for split, sample in samples.items():
            train = () if split == "train" else samples["train"][side]
            for finding in describe_beside(sample[side], train, unspaced=unspaced and side == 1):
                if finding.form in CUT and kind == "given":
                    continue
                if finding.form in CUT and finding.most:
                    raise ValueError(
                        f"{corpus.name}, {language}: {finding.form} in {finding.lines} of {finding.total} "
                        f'lines of {split}: set vocabulary.kind = "given", which joins them before scoring'
                    )
                warnings.append(f"{split}, {language}: {finding}")
    return warnings
