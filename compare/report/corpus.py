"""What people see of a corpus that was checked or prepared."""

from collections.abc import Iterator, Mapping
from typing import Any

from data.prepare.checks import CorpusCheck
from data.prepare.findings import QUANTILES, Finding
from data.prepare.split_check import SplitCheck


def render_check(check: CorpusCheck) -> str:
    """All findings as text: a block for each split."""
    return "\n\n".join(
        "\n".join(_block(name, split, check.overlap.get(name, {}))) for name, split in check.splits.items()
    )


def render_summary(made: Mapping[str, Any]) -> str:
    """What ``data prepare`` read, dropped and wrote, in a line each."""
    dropped = [f"{reason} {count:,}" for reason, count in made["dropped"].items() if count]
    return "\n".join(
        [
            f"read     {made['read']:,} pairs",
            f"dropped  {', '.join(dropped) or 'none'}",
            "written  " + ", ".join(f"{name} {size:,}" for name, size in made["splits"].items()),
        ]
    )


def _block(name: str, split: SplitCheck, overlap: Mapping[str, Finding]) -> Iterator[str]:
    """The lines about one split."""
    yield f"{name or 'corpus'}: {split.pairs:,} pairs"
    yield f"  {'length':<26}" + "".join(f"{quantile:>8}" for quantile in QUANTILES)
    for side, found in split.sides.items():
        for unit, lengths in (("words", found.words), ("characters", found.characters)):
            yield f"  {side + ' ' + unit:<26}" + "".join(f"{n:>8,}" for n in lengths.quantiles().values())
    yield f"  {'ratio tgt/src, median':<26}{split.ratios.median():>8.2f}"
    findings = {
        "a blank side": split.empty,
        "unusual ratio": split.ratios.outliers(),
        "pair stood before": split.duplicates,
        **{f"{side} stood before": found.repeated for side, found in split.sides.items()},
        "target is the source": split.copies,
        "sides swapped?": split.swapped,
        **{f"{side} stands in train": found for side, found in overlap.items()},
        **{
            f"{side}: {k}": f
            for side, found in split.sides.items()
            for k, f in found.unusual.findings.items()
        },
    }
    for label, finding in findings.items():
        if finding.count:
            yield _line(label, finding)


def _line(label: str, finding: Finding) -> str:
    """Count, first lines and characters of one finding."""
    shown = finding.to_json()
    more = ", ..." if finding.count > len(finding.lines) else ""
    characters = ", ".join(f"{code} x{count:,}" for code, count in shown.get("characters", {}).items())
    lines = f"line {', '.join(map(str, finding.lines))}{more}"
    return f"  {label:<26}{finding.count:>8,}  {lines}{f'  ({characters})' if characters else ''}"
