"""The corpora that have names here: languages, sizes, licence, citation, addresses, hashes.

No address was ever asked by us: this was written and tested without a network, against a local server. What
vouches for a file is its hash. Multi30k's en and de files of train, val and test_2016_flickr were at hand and
hashed here, and their md5 is the one in torchtext 0.9's ``MD5`` list, from which those of the other files are.
Hashes of WMT14's training archives are from TensorFlow Datasets' checksums, those of newstest and of IWSLT17
from sacreBLEU. Where nobody published one (Tatoeba, which changes; IWSLT14; two archives of WMT14 en-fr; three
files of Multi30k) the first download is recorded. Splits are those that torchtext 0.6.0's dataset classes name
(its Multi30k, IWSLT, WMT14) wherever these have the corpus.
"""

from data.assembly import NamedCorpus, Part, Side, every_23rd, held_out, whole
from data.download import Remote
from data.published import column, segments, tagged_lines
from data.test_sets import evaluation_archive, official

RAW_GITHUB = "https://raw.githubusercontent.com"
STATMT = ("https://www.statmt.org", "http://www.statmt.org")

MULTI30K = "data/task1/raw"
MULTI30K_DIGESTS = {
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
"""The files of the repository, without .gz; those of 2018 but the English were never in torchtext's list."""

WMT14_TRAINING = {
    "training-parallel-europarl-v7.tgz": (
        "wmt13",
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        657_632_379,
    ),
    "training-parallel-commoncrawl.tgz": (
        "wmt13",
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        918_311_367,
    ),
    "training-parallel-nc-v9.tgz": (
        "wmt14",
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        80_418_416,
    ),
    "training-parallel-un.tgz": ("wmt13", "", None),
    "training-giga-fren.tar": ("wmt10", "", 2_595_102_720),
}
"""Where on statmt.org, the published hash, and the length in bytes."""

WMT14_TEXTS = {
    "training-parallel-europarl-v7.tgz": "training/europarl-v7.{}-en.{}",
    "training-parallel-commoncrawl.tgz": "commoncrawl.{}-en.{}",
    "training-parallel-nc-v9.tgz": "training/news-commentary-v9.{}-en.{}",
    "training-parallel-un.tgz": "un/undoc.2000.{}-en.{}",
    "training-giga-fren.tar": "giga-fren.release2.fixed.{1}.gz",
}
"""What the texts are called in the archives, by the other language and their own."""

TATOEBA_NAMES = {
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


def _multi30k(src: str, tgt: str) -> tuple[Part, ...]:
    names = [file.removesuffix(f".{src}") for file in MULTI30K_DIGESTS if file.endswith(f".{src}")]
    shared = [name for name in names if f"{name}.{tgt}" in MULTI30K_DIGESTS]
    return tuple(
        Part(
            src=Side(remote=_multi30k_file(f"{name}.{src}")),
            tgt=Side(remote=_multi30k_file(f"{name}.{tgt}")),
            divide=whole("valid" if name == "val" else name),
        )
        for name in shared
    )


def _multi30k_file(name: str) -> Remote:
    return Remote(
        name=f"{name}.gz",
        mirrors=(
            f"{RAW_GITHUB}/multi30k/dataset/a3d2e0d/{MULTI30K}/{name}.gz",
            f"https://github.com/multi30k/dataset/raw/a3d2e0d/{MULTI30K}/{name}.gz",
            f"https://cdn.jsdelivr.net/gh/multi30k/dataset@a3d2e0d/{MULTI30K}/{name}.gz",
            f"{RAW_GITHUB}/multi30k/dataset/master/{MULTI30K}/{name}.gz",
        ),
        digest=MULTI30K_DIGESTS[name],
    )


def _tatoeba(_: str, other: str) -> tuple[Part, ...]:
    code = TATOEBA_NAMES[other]
    name = f"{code}-eng.zip"
    schemes = "https", "http"
    remote = Remote(name=name, mirrors=tuple(f"{s}://www.manythings.org/anki/{name}" for s in schemes))
    english, translation = (
        Side(remote=remote, member=f"{code}.txt", form=column(index)) for index in range(2)
    )
    return (Part(src=english, tgt=translation, divide=held_out),)


def _iwslt14(src: str, tgt: str) -> tuple[Part, ...]:
    address = "://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    remote = Remote(name="de-en.tgz", mirrors=(f"https{address}", f"http{address}"))
    tests = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")

    def side(lang: str, test: str) -> Side:
        return Side(remote=remote, member=f"de-en/IWSLT14.{test}.de-en.{lang}.xml", form=segments)

    train = (
        Side(remote=remote, member=f"de-en/train.tags.de-en.{lang}", form=tagged_lines) for lang in (src, tgt)
    )
    return (
        Part(src=next(train), tgt=next(train), divide=every_23rd),
        *(Part(src=side(src, test), tgt=side(tgt, test), divide=whole("test")) for test in tests),
    )


def _iwslt17(src: str, tgt: str) -> tuple[Part, ...]:
    pair = f"{src}-{tgt}"
    remote = evaluation_archive("iwslt17/tst2015", f"{pair}.tgz")

    def part(member: str, split: str) -> Part:
        form = segments if member.endswith(".xml") else tagged_lines
        sides = (Side(remote=remote, member=member.format(lang), form=form) for lang in (src, tgt))
        return Part(src=next(sides), tgt=next(sides), divide=whole(split))

    return (
        part(f"{pair}/train.tags.{pair}.{{}}", "train"),
        part(f"{pair}/IWSLT17.TED.dev2010.{pair}.{{}}.xml", "valid"),
        *(part(f"{pair}/IWSLT17.TED.tst{y}.{pair}.{{}}.xml", f"test_{y}") for y in range(2010, 2016)),
        official("iwslt17", src, tgt, "test_2017"),
    )


def _wmt14(src: str, tgt: str) -> tuple[Part, ...]:
    other = tgt if src == "en" else src
    archives = list(WMT14_TRAINING)[: None if other == "fr" else 3]

    def side(archive: str, lang: str) -> Side:
        folder, digest, size = WMT14_TRAINING[archive]
        mirrors = tuple(f"{host}/{folder}/{archive}" for host in STATMT)
        remote = Remote(name=archive, mirrors=mirrors, digest=digest, size_bytes=size)
        return Side(remote=remote, member=WMT14_TEXTS[archive].format(other, lang))

    train = (Part(src=side(a, src), tgt=side(a, tgt), divide=whole("train")) for a in archives)
    return (
        *train,
        official("wmt13", src, tgt, "valid"),
        official("wmt14/full", src, tgt, "test"),
    )


ALL = (
    NamedCorpus(
        name="multi30k",
        about="captions of photographs, professionally or crowd translated; task 1, raw text",
        languages=(("en", "de"), ("en", "fr"), ("en", "cs"), ("de", "fr"), ("de", "cs"), ("fr", "cs")),
        sizes={"train": 29_000, "valid": 1_014, "test_2016_flickr": 1_000, "test_2017_flickr": 1_000}
        | {"test_2017_mscoco": 461, "test_2018_flickr": 1_071},
        licence="from Flickr30k's captions: non-commercial research and education",
        citation="Elliott, Frank, Sima'an, Specia 2016, Multi30K: Multilingual English-German Image Descriptions",
        home="https://github.com/multi30k/dataset",
        parts=_multi30k,
    ),
    NamedCorpus(
        name="tatoeba",
        about="short sentences of learners' phrase books; grows, so that its hash is that of your download",
        languages=tuple(("en", lang) for lang in TATOEBA_NAMES),
        sizes={"train": 300_000, "valid": 3_000, "test": 3_000},
        licence="CC BY 2.0 FR",
        citation="tatoeba.org, by way of manythings.org/anki; split here, by the hash of the English sentence",
        home="https://www.manythings.org/anki/",
        parts=_tatoeba,
    ),
    NamedCorpus(
        name="iwslt14",
        about="TED talks; every 23rd training pair validates, dev2010, dev2012 and tst2010-12 test, raw text",
        languages=(("de", "en"),),
        sizes={"train": 164_000, "valid": 7_500, "test": 6_750},
        licence="CC BY-NC-ND 4.0 (TED)",
        citation="Cettolo, Girardi, Federico 2012, WIT3: Web Inventory of Transcribed and Translated Talks",
        home="https://sites.google.com/site/iwsltevaluation2014",
        parts=_iwslt14,
    ),
    NamedCorpus(
        name="iwslt17",
        about="TED talks; dev2010 validates, tst2010-15 and the official tst2017 test",
        languages=(("de", "en"), ("fr", "en"), ("zh", "en")),
        sizes={"train": 206_000, "valid": 888, "tests 2010-15": 8_079, "test_2017": 1_138},
        licence="CC BY-NC-ND 4.0 (TED)",
        citation="Cettolo et al. 2017, Overview of the IWSLT 2017 Evaluation Campaign",
        home="https://sites.google.com/site/iwsltevaluation2017",
        parts=_iwslt17,
    ),
    NamedCorpus(
        name="wmt14",
        about="Europarl, Common Crawl, News Commentary (en-fr: UN and 10^9 too); newstest2013 and 2014 (full)",
        languages=(("en", "de"), ("en", "fr")),
        sizes={"train": 4_500_000, "valid": 3_000, "test": 3_003},
        licence="none stated; for research, each part under its own terms",
        citation="Bojar et al. 2014, Findings of the 2014 Workshop on Statistical Machine Translation",
        home="https://www.statmt.org/wmt14/translation-task.html",
        parts=_wmt14,
    ),
)
