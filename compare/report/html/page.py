"""Render the content of the report as one HTML file."""

import logging
from dataclasses import asdict
from pathlib import Path

from compare.attention import viewer
from compare.attention.page import read_asset, render_page
from compare.report.html.content import ReportContent, gather_content
from compare.results.write_protection import refuse_writing
from data.text.files import write_atomically

logger = logging.getLogger(__name__)

NAME = "report.html"
PACKAGE = "compare.report.html"


def build_report(
    folder: str | Path,
    *,
    baseline: str = "",
    tuning: str | Path | None = None,
    out: str | Path | None = None,
    data_root: str = "",
) -> Path:
    """Write an experiment's page, one self-contained file.

    Args:
        folder: the folder of an experiment with at least one finished run.
        baseline: the label to set the other models against; empty: that of the highest BLEU.
        tuning: folder that ``tune_experiment`` wrote; None: ``folder``, if it has a trials.jsonl.
        out: the file; by default report.html in ``folder``.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        Path of the file.

    Raises:
        OSError: ``out`` cannot be written, or ``data_root`` not be read.
        ValueError: no finished run, or a result or its settings cannot be read, no such baseline,
            ``data_root`` is not the corpus of the runs, or ``out`` is not given for a published or read-only
            folder.
    """
    folder = Path(folder)
    if out is None:
        refuse_writing(folder, "name another file for its report with --out")
    path = folder / NAME if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file, such as {path / NAME}")
    search = None if tuning is None else Path(tuning)
    content = gather_content(folder, baseline=baseline, tuning=search, data_root=data_root)
    write_atomically(path, render(content))
    logger.info(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def render(content: ReportContent) -> str:
    """Render the page; text of models and data is escaped, and only this package's script may run."""
    return render_page(
        PACKAGE,
        "template.html.j2",
        scripts=[read_asset(viewer.PACKAGE, viewer.VIEWER_SCRIPT), read_asset(PACKAGE, "report.js")],
        styles=[read_asset(viewer.PACKAGE, viewer.VIEWER_STYLE), read_asset(PACKAGE, "report.css")],
        page=content,
        viewer=asdict(content.viewer),
    )
