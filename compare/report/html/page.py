"""Render the content of the report as one HTML file."""

import base64
import hashlib
import json
import logging
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from compare.report.html.content import ReportContent, gather_content
from compare.results.write_protection import refuse_writing
from data.text.control_characters import visible_lines
from data.text.files import write_atomically

logger = logging.getLogger(__name__)

NAME = "report.html"


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
    search = None if tuning is None else Path(tuning)
    content = gather_content(folder, baseline=baseline, tuning=search, data_root=data_root)
    write_atomically(path, render(content))
    logger.info(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def render(content: ReportContent) -> str:
    """Render the page; text of models and data is escaped, and only this package's script may run."""
    environment = Environment(
        loader=PackageLoader("compare.report.html", "."),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = _dump_json
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    script = _own("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment.get_template("template.html.j2")
    return template.render(
        page=content,
        viewer=asdict(content.viewer),
        style=Markup(_own("report.css")),
        script=Markup(script),
        script_hash=f"'sha256-{digest}'",
        svg=Markup,
    )


def _visible(value: Any) -> Any:
    """Escape control characters in what the template prints; this package's own markup stays as it is."""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _dump_json(value: Any, **options: Any) -> str:
    """Serialise to JSON, in which the characters that HTML forbids are escaped."""
    return visible_lines(json.dumps(value, **options))


def _own(name: str) -> str:
    """Read a file of this package."""
    return (files("compare.report.html") / name).read_text(encoding="utf-8")
