"""Tatoeba by way of ManyThings: English sentences with translations by volunteers, short and simple.

The files are made anew as the collection grows, so the hash to go by is that of your own first download.
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
"""What ManyThings calls the languages."""


def parts(english: str, other: str) -> tuple[Part, ...]:
    """The one file: English, translation and attribution in columns."""
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
