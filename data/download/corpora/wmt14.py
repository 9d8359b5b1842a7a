"""WMT14, English-German and English-French: the task's training text, newstest2013 and newstest2014.

The digests of three archives are those of TensorFlow Datasets; for the two that only English-French has, none
is published. newstest2014 is the full set of 3,003 sentences, which papers report.
"""

from data.download.corpora.parts import NamedCorpus, Part, Side, whole
from data.download.corpora.test_sets import official
from data.download.download import Remote

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


def parts(src: str, tgt: str) -> tuple[Part, ...]:
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
    parts=parts,
)
