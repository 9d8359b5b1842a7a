"""Text output of ``data check`` and ``data prepare``."""

from collections.abc import Iterator, Mapping
from typing import Any

from data.prepare.checks import CorpusCheck
from data.prepare.findings import QUANTILES, Finding
from data.prepare.split_check import SplitCheck
from data.prepare.unusual_characters import BROKEN


def render_check(check: CorpusCheck) -> str:
    """Render the measurements and findings of a check, one block of lines per split."""
    return "\n\n".join(
        "\n".join(_block(name, split, check.overlap.get(name, {}))) for name, split in check.splits.items()
    )


def render_summary(manifest: Mapping[str, Any]) -> str:
    """Render how many pairs ``data prepare`` read, dropped and wrote, one line each.

    Args:
        manifest: result of ``prepare_corpus``, or of ``summary`` after a dry run.
    """
    dropped = [f"{reason} {count:,}" for reason, count in manifest["dropped"].items() if count]
    return "\n".join(
        [
            f"read     {manifest['read']:,} pairs",
            f"dropped  {', '.join(dropped) or 'none'}",
            "written  " + ", ".join(f"{name} {size:,}" for name, size in manifest["splits"].items()),
        ]
    )


def _block(name: str, split: SplitCheck, overlap: Mapping[str, Finding]) -> Iterator[str]:
    """Yield the lines about one split."""
    yield f"{name or 'corpus'}: {split.pairs:,} pairs"
    yield f"  {'length':<26}" + "".join(f"{quantile:>8}" for quantile in QUANTILES)
    for side, check in split.sides.items():
        for unit, lengths in (("words", check.words), ("characters", check.characters)):
            yield f"  {side + ' ' + unit:<26}" + "".join(f"{n:>8,}" for n in lengths.quantiles().values())
    yield f"  {'ratio tgt/src, median':<26}{split.ratios.median():>8.2f}"
    findings = {
        "a blank side": split.empty,
        "unusual ratio": split.ratios.outliers(),
        "repeated pair": split.duplicates,
        **{f"repeated {side}": check.repeated for side, check in split.sides.items()},
        "target is the source": split.copies,
        "sides swapped?": split.swapped,
        **{f"{side} also in train": finding for side, finding in overlap.items()},
    }
    for label, finding in findings.items():
        if finding.count:
            yield _line(label, finding)
    for side, check in split.sides.items():
        for kind, finding in check.unusual.findings.items():
            if finding.count:
                yield _line(f"{side}: {kind}", finding, kind)


def _line(label: str, finding: Finding, kind: str = "") -> str:
    """Render count, first lines and characters of one finding; ``kind`` is that of unusual characters."""
    common = finding.to_json().get("characters", {})
    more = ", ..." if finding.count > len(finding.lines) else ""
    characters = ", ".join(f"{code} x{count:,}" for code, count in common.items())
    lines = f"line {', '.join(map(str, finding.lines))}{more}"
    if kind == BROKEN:
        characters = "bytes that are not UTF-8: save the file as UTF-8, or drop these lines by --drop-broken"
    return f"  {label:<26}{finding.count:>8,}  {lines}{f'  ({characters})' if characters else ''}"
