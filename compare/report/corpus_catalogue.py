"""Catalogue of the named corpora, as text and as JSON."""

from pathlib import Path
from typing import Any

from compare.system.progress import Reporter
from data.download.corpora.parts import NamedCorpus
from data.download.download import Remote
from data.download.named import CORPORA, fetch, named_corpus

NOTE = "No address was asked by us; what vouches for a file is its hash, or your own first download."


def entries() -> list[dict[str, Any]]:
    """List the corpora with languages, sizes, licence, citation, and the files of each language pair."""
    return [
        {
            "name": corpus.name,
            "about": corpus.about,
            "languages": ["-".join(pair) for pair in corpus.languages],
            "pairs_about": dict(corpus.sizes),
            "licence": corpus.licence,
            "citation": corpus.citation,
            "home": corpus.home,
            "fetched_by_us": False,
            "files": {"-".join(pair): addresses(corpus.name, *pair) for pair in corpus.languages},
        }
        for corpus in CORPORA.values()
    ]


def addresses(name: str, src: str, tgt: str) -> list[dict[str, Any]]:
    """List the files of one language pair: name, published digest, size in bytes, mirrors.

    Args:
        name: name of the corpus.
        src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
        tgt: target language.

    Raises:
        ValueError: there is no such corpus or language pair.
    """
    corpus = named_corpus(name)
    return [
        {
            "file": remote.name,
            "hash": remote.digest or "recorded by the first download",
            "bytes": remote.size_bytes,
            "from": list(remote.mirrors),
        }
        for remote in _remotes(corpus, *corpus.pair(src, tgt))
    ]


def render_catalogue() -> str:
    """Render the catalogue as text, one paragraph per corpus."""
    return "\n\n".join([*(_paragraph(corpus) for corpus in CORPORA.values()), NOTE])


def fetched(name: str, src: str, tgt: str, root: Path, *, quiet: bool) -> Path:
    """Download a named corpus and show the progress; see ``fetch`` for arguments, result and errors."""
    with Reporter(quiet=quiet).downloads() as progress:
        return fetch(name, src, tgt, root, progress)


def _paragraph(corpus: NamedCorpus) -> str:
    """Render one corpus; its files are those of its first language pair."""
    remotes = _remotes(corpus, *corpus.languages[0])
    unknown = sum(not remote.digest for remote in remotes)
    hashes = f"{len(remotes) - unknown} of {len(remotes)} files published"
    sizes = ", ".join(f"{split} {size:,}" for split, size in corpus.sizes.items())
    details = {
        "languages": ", ".join("-".join(pair) for pair in corpus.languages),
        "about": f"{sizes} pairs",
        "licence": corpus.licence,
        "cite": corpus.citation,
        "see": corpus.home,
        "hashes": hashes + (", else that of your first download" if unknown else ""),
    }
    lines = (f"  {label:<10} {text}" for label, text in details.items())
    return "\n".join([f"{corpus.name}: {corpus.about}", *lines])


def _remotes(corpus: NamedCorpus, src: str, tgt: str) -> list[Remote]:
    """List the distinct downloads of one language pair."""
    parts = corpus.parts(src, tgt)
    return list(dict.fromkeys(side.remote for part in parts for side in (part.src, part.tgt)))
