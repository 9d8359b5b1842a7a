"""Multi30k, task 1: image captions in four languages, all language pairs and test sets of its repository.

The md5 digests are those of torchtext 0.9; the six sha256 digests are of files that match torchtext's md5.
"""

from data.download.corpora.parts import NamedCorpus, Part, Side, whole
from data.download.download import Remote

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


def parts(src: str, tgt: str) -> tuple[Part, ...]:
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
    parts=parts,
)
