"""Tatoeba, in the files of ManyThings.org: short English sentences with translations by volunteers.

The files are updated as the collection grows, so no digest is published: the first download records one.
"""

from data.download.corpora.parts import NamedCorpus, Part, Side, held_out
from data.download.corpora.published import column
from data.download.download import Remote

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


def parts(english: str, other: str) -> tuple[Part, ...]:
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
    parts=parts,
)
