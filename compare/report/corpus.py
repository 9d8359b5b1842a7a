"""Text output of ``data check``, ``data prepare`` and ``data get --list``."""

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

from compare.report.table_formats import terminal_width
from data.checks import QUANTILES, CorpusCheck, Finding, SplitCheck
from data.forms import Finding as Form
from data.named import CORPORA, NamedCorpus, named_corpus

# Text output of ``data check`` and ``data prepare``.


def render_check(check: CorpusCheck) -> str:
    """Render a check, one block of lines per split."""
    return "\n\n".join("\n".join(_block(name, split)) for name, split in check.splits.items())


def render_findings(check: CorpusCheck) -> str:
    """Render only the problems of a check, each form of the texts once; empty if there are none."""
    blocks = {name: list(_findings(split)) for name, split in check.splits.items()}
    lines = [line for name, block in blocks.items() if block for line in (f"{name}:", *block)]
    lines += _common_forms(check)
    if any(finding.count for split in check.splits.values() for finding in split.overlap.values()):
        lines.append("--drop-overlap drops the training pairs that share a side with valid or test")
    return "\n".join(lines)


def _common_forms(check: CorpusCheck) -> Iterator[str]:
    texts: dict[tuple[str, str], list[tuple[str, Form]]] = {}
    for name, split in check.splits.items():
        for side, side_check in split.sides.items():
            for form in side_check.forms:
                texts.setdefault((form.form, form.remedy), []).append((f"{name} {side}", form))
    for (name, remedy), sides in texts.items():
        if len(sides) == 1:
            yield "{}: {}".format(*sides[0])
            continue
        lines, total = (sum(getattr(form, count) for _, form in sides) for count in ("lines", "total"))
        is_everywhere = len(sides) == sum(len(split.sides) for split in check.splits.values())
        where = "all texts" if is_everywhere else ", ".join(side for side, _ in sides)
        yield f"{name} in {lines:,} of {total:,} lines of {where}: {remedy}"


def render_summary(manifest: Mapping[str, Any], *, warnings: bool) -> str:
    """Render how many pairs were read, dropped and written, from the result of ``prepare_corpus``."""
    dropped = [f"{reason} {count:,}" for reason, count in manifest["dropped"].items() if count]
    return "\n".join(
        [
            f"read     {manifest['read']:,} pairs, {' -> '.join(manifest['languages'])}",
            f"dropped  {', '.join(dropped) or 'none'}",
            "written  " + ", ".join(f"{name} {size:,}" for name, size in manifest["splits"].items()),
            *(f"warning  {warning}" for warning in manifest["warnings"] if warnings),
        ]
    )


def _block(name: str, split: SplitCheck) -> Iterator[str]:
    yield f"{name or 'corpus'}: {split.pairs:,} pairs"
    yield f"  {'length':<26}" + "".join(f"{quantile:>8}" for quantile in QUANTILES)
    for side, check in split.sides.items():
        for unit, lengths in check.quantiles().items():
            yield f"  {side + ' ' + unit:<26}" + "".join(f"{n:>8,}" for n in lengths.values())
    yield f"  {'ratio tgt/src, median':<26}{split.median_ratio:>8.2f}"
    yield from _findings(split)
    for side, check in split.sides.items():
        yield from (f"  {side}: {form}" for form in check.forms)


def _findings(split: SplitCheck) -> Iterator[str]:
    duplicates = split.findings["duplicates"]
    findings = {
        "a blank side": split.findings["empty"],
        "unusual ratio": split.findings["ratio_outliers"],
        "repeated pair": duplicates,
        **{
            f"repeated {side}": check.repeated
            for side, check in split.sides.items()
            if check.repeated.count != duplicates.count  # else the pairs say it
        },
        "target is the source": split.findings["copies"],
        "sides swapped?": split.findings["swapped"],
        **{f"{side} also in train": finding for side, finding in split.overlap.items()},
    }
    for label, finding in findings.items():
        if finding.count:
            yield _line(label, finding)
    for side, check in split.sides.items():
        for kind, finding in check.unusual.items():
            yield _line(f"{side}: {kind}", finding, kind)


def _line(label: str, finding: Finding, kind: str = "") -> str:
    """Render count, first lines and characters of a finding; ``kind`` is that of unusual characters."""
    common = finding.to_json().get("characters", {})
    more = ", ..." if finding.count > len(finding.lines) else ""
    characters = ", ".join(f"{code} x{count:,}" for code, count in common.items())
    lines = f"line {', '.join(map(str, finding.lines))}{more}"
    if kind == "not text":
        characters = (
            "not UTF-8: save the file as UTF-8 (Windows: iconv -f CP1252 -t UTF-8); few lines: --drop-broken"
        )
    return f"  {label:<26}{finding.count:>8,}  {lines}{f'  ({characters})' if characters else ''}"


# Catalogue of the named corpora, as text and as JSON.


NOTE = "These URLs were not tested; downloads are verified by hash."


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
            "files": {"-".join(pair): addresses(corpus.name, *pair) for pair in corpus.languages},
        }
        for corpus in CORPORA.values()
    ]


def addresses(name: str, src: str, tgt: str) -> list[dict[str, Any]]:
    """List the files of one language pair, by default the first: name, hash, bytes, mirrors.

    Raises:
        ValueError: there is no such corpus or language pair.
    """
    corpus = named_corpus(name)
    return [
        {
            "file": remote.name,
            "hash": remote.hash or "none published",
            "bytes": remote.bytes,
            "from": list(remote.mirrors),
        }
        for remote in corpus.remotes(corpus.pair(src, tgt))
    ]


def render_catalogue() -> str:
    """Render the catalogue as text, one paragraph per corpus."""
    return "\n\n".join([*(_paragraph(corpus) for corpus in CORPORA.values()), NOTE])


def _paragraph(corpus: NamedCorpus) -> str:
    """Render one corpus, with the files of its first language pair."""
    remotes = corpus.remotes(corpus.languages[0])
    hashed = sum(bool(remote.hash) for remote in remotes)
    sizes = ", ".join(f"{split} {size:,}" for split, size in corpus.sizes.items())
    details = {
        "languages": ", ".join("-".join(pair) for pair in corpus.languages),
        "about": f"{sizes} pairs",
        "licence": corpus.licence,
        "cite": corpus.citation,
        "see": corpus.home,
        "hashes": f"{hashed} of {len(remotes)} files published",
    }
    width, later = terminal_width(), " " * 13
    lines = (f"  {label:<10} {text}" for label, text in details.items())
    return "\n".join(
        fill(line, width, subsequent_indent=later, break_on_hyphens=False, break_long_words=False)
        for line in (f"{corpus.name}: {corpus.about}", *lines)
    )
