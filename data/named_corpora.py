"""The named corpora: where their files are, and how they become folders of parallel lines.

This was written and tested without network access, against a local server; no URL was ever requested. The
digests show whether a file is the right one. The splits of Multi30k and WMT14 are those of torchtext 0.6.0's
dataset classes.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from data.download import Remote
from data.text import BYTE_ORDER_MARK

# Readers of the formats that corpora are published in: lines, .gz, columns, IWSLT's tags, WMT's
# segments.


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


# Structure of a named corpus: parts of two sides, each side a text in a published file.


Pair = tuple[str, str]
Divide = Callable[[Iterable[Pair]], Iterator[tuple[str, str, str]]]
"""Assigns pairs to splits; yields (split, source, target)."""

HELD_OUT_FRACTION = 0.01
"""Fraction of sources for valid, and again for test, in a corpus without published splits."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The text of one language."""

    remote: Remote
    member: str = ""
    """Its name in the archive; empty if the download is the text itself."""
    form: Form = whole_lines
    """Reader of its format."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Two texts, parallel line by line, and how their pairs are divided among splits."""

    src: Side
    tgt: Side
    divide: Divide


@dataclass(frozen=True, kw_only=True)
class NamedCorpus:
    """A published corpus: description, and the files that it consists of."""

    name: str
    about: str
    languages: tuple[Pair, ...]
    """Its language pairs; each can be translated in both directions."""
    sizes: Mapping[str, int]
    """Approximate number of pairs of each split, as published, for the first language pair."""
    licence: str
    citation: str
    home: str
    """URL of its home page."""
    parts: Callable[[str, str], tuple[Part, ...]]
    """Lists the parts for one of ``languages``."""

    def pair(self, src: str, tgt: str) -> Pair:
        """Find a language pair in either direction.

        Args:
            src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
            tgt: target language.

        Returns:
            The entry of ``languages``, in its own order.

        Raises:
            ValueError: the corpus has no such pair.
        """
        if not src and not tgt:
            return self.languages[0]
        for pair in self.languages:
            if pair in ((src, tgt), (tgt, src)):
                return pair
        available = ", ".join("-".join(pair) for pair in self.languages)
        raise ValueError(f"{self.name} has no pair {src or '?'}-{tgt or '?'}; it has {available}")


def whole(split: str) -> Divide:
    """Assign all pairs to ``split``."""
    return lambda pairs: ((split, *pair) for pair in pairs)


def every_23rd(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Assign every 23rd pair to valid and the others to train, as fairseq's recipe for IWSLT14 does."""
    for number, pair in enumerate(pairs, start=1):
        yield ("train" if number % 23 else "valid", *pair)


def held_out(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Divide a corpus without published splits by a hash of each source, so that every run gives the same.

    All pairs of one source are in one split. Pairs whose target occurs in test too are dropped from valid and
    train, those whose target occurs in valid from train. All pairs are held in memory: meant for corpora of
    about 100,000 pairs.
    """
    order = ("test", "valid", "train")
    divided = sorted(
        (order.index(_split_of(src)), number, src, tgt) for number, (src, tgt) in enumerate(pairs)
    )
    first_split: dict[str, int] = {}
    for split, _, src, tgt in divided:
        if first_split.setdefault(tgt, split) == split:
            yield order[split], src, tgt


def pairs_of(part: Part, src: Path, tgt: Path) -> Iterator[Pair]:
    """Read the pairs of a part.

    Args:
        part: gives the formats of both texts.
        src: path of the source text.
        tgt: path of the target text.

    Raises:
        ValueError: a text is damaged or not UTF-8, or one text is shorter than the other.
    """
    for number, (left, right) in enumerate(zip_longest(part.src.form(src), part.tgt.form(tgt))):
        if left is None or right is None:
            shorter, longer = (src, tgt) if left is None else (tgt, src)
            raise ValueError(
                f"{shorter} ends after {number:,} sentences, but {longer} is longer: not parallel"
            )
        yield left, right


def _split_of(src: str) -> str:
    """Draw the split of a source by its hash."""
    draw = int.from_bytes(hashlib.sha256(src.encode()).digest()[:8]) / 2**64  # in [0, 1)
    return "test" if draw < HELD_OUT_FRACTION else "valid" if draw < 2 * HELD_OUT_FRACTION else "train"


# Official test sets, by the URLs, digests and file names that sacreBLEU lists.
#
# sacreBLEU's own download is not used: it has neither resume nor timeout, writes in place, and ends the
# process if a digest does not match.


def official(test_set: str, src: str, tgt: str, split: str) -> Part:
    """Build the part of an official test set.

    Args:
        test_set: sacreBLEU's name of it.
        src: source language.
        tgt: target language, in which the references are.
        split: name of the split.
    """
    from sacrebleu.dataset import DATASETS  # imported here since it takes half a second

    src_file, tgt_file = DATASETS[test_set].langpairs[f"{src}-{tgt}"][:2]
    sides = (
        Side(remote=_archive_of(test_set, file), member=file, form=segments) for file in (src_file, tgt_file)
    )
    return Part(src=next(sides), tgt=next(sides), divide=whole(split))


def evaluation_archive(test_set: str, suffix: str) -> Remote:
    """Find the archive of a test set.

    Args:
        test_set: sacreBLEU's name of it.
        suffix: end of the archive's URL, which exactly one of the test set's archives has.

    Returns:
        The archive, with the md5 that sacreBLEU checks.
    """
    from sacrebleu.dataset import DATASETS

    dataset = DATASETS[test_set]
    archives = zip(dataset.data or (), dataset.md5 or (), strict=True)
    [(url, md5)] = {(url, md5) for url, md5 in archives if url.endswith(suffix)}
    return Remote(
        name=f"{test_set.replace('/', '-')}-{url.rpartition('/')[2]}", mirrors=(url,), digest=f"md5:{md5}"
    )


def _archive_of(test_set: str, file: str) -> Remote:
    """Find the archive that holds ``file``: the only one, or the one named like the file's first folder."""
    from sacrebleu.dataset import DATASETS

    urls = DATASETS[test_set].data or ()
    return evaluation_archive(test_set, "" if len(urls) == 1 else f"/{file.split('/')[0]}.tgz")


# Multi30k, task 1: image captions in four languages, all language pairs and test sets of its repository.
#
# The md5 digests are those of torchtext 0.9; the six sha256 digests are of files that match torchtext's md5.


FOLDER = "data/task1/raw"
COMMIT = "a3d2e0d"

DIGESTS = {
    "train.en": "sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de": "sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr": "md5:6cb767741dcad3931f966fefbc05203f",
    "train.cs": "md5:d9a5fc268917725a2b0efce3a0cc8607",
    "val.en": "sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de": "sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr": "md5:93fc564584b7e5ba410c761ea5a1c682",
    "val.cs": "md5:83cdc082f646b769095615384cf5c0ca",
    "test_2016_flickr.en": "sha256:611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de": "sha256:9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr": "md5:08dc7cd4a662f31718412de95ca9bfe3",
    "test_2016_flickr.cs": "md5:3104872229daa1bef3b401d44dd2220b",
    "test_2017_flickr.en": "md5:005396bac545d880abe6f00bbb7dbbb4",
    "test_2017_flickr.de": "md5:6a8d5c87f6ae19e3d35681aa6fd16571",
    "test_2017_flickr.fr": "md5:cb09af7d2b501f9112f2d6a59fa1360d",
    "test_2017_mscoco.en": "md5:a7b684e0edbef1d4a23660c8e8e743fd",
    "test_2017_mscoco.de": "md5:e8cd6ec2bc8a11fc846fa48a46e3d0bb",
    "test_2017_mscoco.fr": "md5:4995d10954a804d3cdfd907b9fd093e8",
    "test_2018_flickr.en": "md5:a152878809942757a55ce087073486b8",
    "test_2018_flickr.de": "",
    "test_2018_flickr.fr": "",
    "test_2018_flickr.cs": "",
}
"""The repository's files, without .gz; of test_2018_flickr, torchtext has only the English digest."""


def multi30k_parts(src: str, tgt: str) -> tuple[Part, ...]:
    """List a part for each split that has both languages."""
    names = [file.removesuffix(f".{src}") for file in DIGESTS if file.endswith(f".{src}")]
    return tuple(
        Part(
            src=Side(remote=_remote(f"{name}.{src}")),
            tgt=Side(remote=_remote(f"{name}.{tgt}")),
            divide=whole("valid" if name == "val" else name),
        )
        for name in names
        if f"{name}.{tgt}" in DIGESTS
    )


def _remote(name: str) -> Remote:
    raw, path = "https://raw.githubusercontent.com/multi30k/dataset", f"{FOLDER}/{name}.gz"
    return Remote(
        name=f"{name}.gz",
        mirrors=(
            f"{raw}/{COMMIT}/{path}",
            f"https://github.com/multi30k/dataset/raw/{COMMIT}/{path}",
            f"https://cdn.jsdelivr.net/gh/multi30k/dataset@{COMMIT}/{path}",
            f"{raw}/master/{path}",
        ),
        digest=DIGESTS[name],
    )


MULTI30K = NamedCorpus(
    name="multi30k",
    about="captions of photographs, translated by people; task 1, raw text",
    languages=(("en", "de"), ("en", "fr"), ("en", "cs"), ("de", "fr"), ("de", "cs"), ("fr", "cs")),
    sizes={
        "train": 29_000,
        "valid": 1_014,
        "test_2016_flickr": 1_000,
        "test_2017_flickr": 1_000,
        "test_2017_mscoco": 461,
        "test_2018_flickr": 1_071,
    },
    licence="from Flickr30k's captions: non-commercial research and education",
    citation="Elliott et al. 2016, Multi30K: Multilingual English-German Image Descriptions",
    home="https://github.com/multi30k/dataset",
    parts=multi30k_parts,
)


# Tatoeba, in the files of ManyThings.org: short English sentences with translations by volunteers.
#
# The files are updated as the collection grows, so no digest is published: the first download records one.


CODES = {
    "de": "deu",
    "fr": "fra",
    "es": "spa",
    "it": "ita",
    "pt": "por",
    "nl": "nld",
    "ru": "rus",
    "tr": "tur",
    "ja": "jpn",
    "zh": "cmn",
}
"""ManyThings' codes of the languages."""


def tatoeba_parts(english: str, other: str) -> tuple[Part, ...]:
    """Return the one part; its file has columns for English, translation and attribution."""
    name = f"{CODES[other]}-eng.zip"
    address = f"www.manythings.org/anki/{name}"
    remote = Remote(name=name, mirrors=(f"https://{address}", f"http://{address}"))
    text = f"{CODES[other]}.txt"
    return (
        Part(
            src=Side(remote=remote, member=text, form=column(0)),
            tgt=Side(remote=remote, member=text, form=column(1)),
            divide=held_out,
        ),
    )


TATOEBA = NamedCorpus(
    name="tatoeba",
    about="short sentences for learners; split here, by the hash of the English sentence",
    languages=tuple(("en", lang) for lang in CODES),
    sizes={"train": 300_000, "valid": 3_000, "test": 3_000},
    licence="CC BY 2.0 FR",
    citation="sentences of tatoeba.org, by way of www.manythings.org/anki",
    home="https://www.manythings.org/anki/",
    parts=tatoeba_parts,
)


# IWSLT 2014 and 2017: TED talks as raw text.
#
# IWSLT14 is divided as in fairseq's recipe, every 23rd training pair being valid and five sets together test.
# But titles and descriptions are left out here, and nothing is cleaned, lowercased or tokenised, so that
# other pairs are the 23rd: train and valid differ from fairseq's, and test is the same text. No digest of the
# archive is published.


IWSLT14_ADDRESS = "dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
IWSLT14_ARCHIVE = Remote(
    name="de-en.tgz", mirrors=(f"https://{IWSLT14_ADDRESS}", f"http://{IWSLT14_ADDRESS}")
)
IWSLT14_TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def iwslt14(src: str, tgt: str) -> tuple[Part, ...]:
    """List the training text, divided into train and valid, and the five test sets."""

    def side(member: str) -> Side:
        form = segments if member.endswith(".xml") else tagged_lines
        return Side(remote=IWSLT14_ARCHIVE, member=f"de-en/{member}", form=form)

    train, test = "train.tags.de-en.{}", "IWSLT14.{}.de-en.{}.xml"
    return (
        Part(src=side(train.format(src)), tgt=side(train.format(tgt)), divide=every_23rd),
        *(
            Part(src=side(test.format(name, src)), tgt=side(test.format(name, tgt)), divide=whole("test"))
            for name in IWSLT14_TESTS
        ),
    )


def iwslt17(src: str, tgt: str) -> tuple[Part, ...]:
    """List the training text, dev2010 (valid), the test sets of 2010 to 2015, and that of 2017."""
    pair = f"{src}-{tgt}"
    archive = evaluation_archive("iwslt17/tst2015", f"/{pair}.tgz")

    def part(name: str, split: str) -> Part:
        form = segments if name.endswith(".xml") else tagged_lines
        src_side, tgt_side = (
            Side(remote=archive, member=f"{pair}/{name.format(pair, lang)}", form=form) for lang in (src, tgt)
        )
        return Part(src=src_side, tgt=tgt_side, divide=whole(split))

    return (
        part("train.tags.{}.{}", "train"),
        part("IWSLT17.TED.dev2010.{}.{}.xml", "valid"),
        *(part(f"IWSLT17.TED.tst{year}.{{}}.{{}}.xml", f"test_{year}") for year in range(2010, 2016)),
        official("iwslt17", src, tgt, "test_2017"),
    )


IWSLT14 = NamedCorpus(
    name="iwslt14",
    about="TED talks; every 23rd training pair validates; dev2010, dev2012 and tst2010-12 test",
    languages=(("de", "en"),),
    sizes={"train": 164_000, "valid": 7_500, "test": 6_750},
    licence="CC BY-NC-ND 4.0 (TED)",
    citation="Cettolo, Girardi, Federico 2012, WIT3: Web Inventory of Transcribed and Translated Talks",
    home="https://sites.google.com/site/iwsltevaluation2014",
    parts=iwslt14,
)

IWSLT17 = NamedCorpus(
    name="iwslt17",
    about="TED talks; dev2010 validates, tst2010-15 and the official tst2017 test",
    languages=(("de", "en"), ("fr", "en"), ("zh", "en")),
    sizes={"train": 206_000, "valid": 888, "test_2010 to test_2015": 8_079, "test_2017": 1_138},
    licence="CC BY-NC-ND 4.0 (TED)",
    citation="Cettolo et al. 2017, Overview of the IWSLT 2017 Evaluation Campaign",
    home="https://sites.google.com/site/iwsltevaluation2017",
    parts=iwslt17,
)


# WMT14, English-German and English-French: the task's training text, newstest2013 and newstest2014.
#
# The digests of three archives are those of TensorFlow Datasets; for the two that only English-French has,
# none is published. newstest2014 is the full set of 3,003 sentences, which papers report.


HOSTS = ("https://www.statmt.org", "http://www.statmt.org")

ARCHIVES = {
    "europarl": Remote(
        name="training-parallel-europarl-v7.tgz",
        mirrors=tuple(f"{host}/wmt13/training-parallel-europarl-v7.tgz" for host in HOSTS),
        digest="sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        size_bytes=657_632_379,
    ),
    "commoncrawl": Remote(
        name="training-parallel-commoncrawl.tgz",
        mirrors=tuple(f"{host}/wmt13/training-parallel-commoncrawl.tgz" for host in HOSTS),
        digest="sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        size_bytes=918_311_367,
    ),
    "news-commentary": Remote(
        name="training-parallel-nc-v9.tgz",
        mirrors=tuple(f"{host}/wmt14/training-parallel-nc-v9.tgz" for host in HOSTS),
        digest="sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        size_bytes=80_418_416,
    ),
    "un": Remote(
        name="training-parallel-un.tgz",
        mirrors=tuple(f"{host}/wmt13/training-parallel-un.tgz" for host in HOSTS),
    ),
    "giga": Remote(
        name="training-giga-fren.tar",
        mirrors=tuple(f"{host}/wmt10/training-giga-fren.tar" for host in HOSTS),
    ),
}

TEXTS = {
    "europarl": "training/europarl-v7.{other}-en.{lang}",
    "commoncrawl": "commoncrawl.{other}-en.{lang}",
    "news-commentary": "training/news-commentary-v9.{other}-en.{lang}",
    "un": "un/undoc.2000.{other}-en.{lang}",
    "giga": "giga-fren.release2.fixed.{lang}.gz",
}
"""Names of the texts in the archives."""

FRENCH_ONLY = ("un", "giga")


def wmt14_parts(src: str, tgt: str) -> tuple[Part, ...]:
    """List the training texts, newstest2013 (valid) and newstest2014 (test)."""
    other = tgt if src == "en" else src

    def side(archive: str, lang: str) -> Side:
        member = TEXTS[archive].format(other=other, lang=lang)
        return Side(remote=ARCHIVES[archive], member=member)

    archives = [name for name in ARCHIVES if other == "fr" or name not in FRENCH_ONLY]
    return (
        *(Part(src=side(name, src), tgt=side(name, tgt), divide=whole("train")) for name in archives),
        official("wmt13", src, tgt, "valid"),
        official("wmt14/full", src, tgt, "test"),
    )


WMT14 = NamedCorpus(
    name="wmt14",
    about="parliament, web, news commentary (en-fr: UN and 10^9 too); newstest2013, newstest2014 (full)",
    languages=(("en", "de"), ("en", "fr")),
    sizes={"train": 4_500_000, "valid": 3_000, "test": 3_003},
    licence="none stated; for research, each part under its own terms",
    citation="Bojar et al. 2014, Findings of the 2014 Workshop on Statistical Machine Translation",
    home="https://www.statmt.org/wmt14/translation-task.html",
    parts=wmt14_parts,
)
