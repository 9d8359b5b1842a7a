"""IWSLT 2014 and 2017: TED talks as raw text.

IWSLT14 is divided as in fairseq's recipe, every 23rd training pair being valid and five sets together test.
But titles and descriptions are left out here, and nothing is cleaned, lowercased or tokenised, so that other
pairs are the 23rd: train and valid differ from fairseq's, and test is the same text. No digest of the archive
is published.
"""

from data.download.corpora.parts import NamedCorpus, Part, Side, every_23rd, whole
from data.download.corpora.published import segments, tagged_lines
from data.download.corpora.test_sets import evaluation_archive, official
from data.download.download import Remote

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
