"""Scores of finished runs on another test set."""

import logging
from collections.abc import Sequence
from pathlib import Path

from compare.results.trained_model import load_model
from compare.scoring.score import SystemScores, all_metrics, score_texts
from data.text.files import ensure_unchanged, write_atomically
from data.text.lines import line_count_error, read_lines
from data.text.paths import as_paths

logger = logging.getLogger(__name__)


def score_runs(
    runs: str | Path | Sequence[str | Path],
    src: str | Path,
    references: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    device: str = "cpu",
) -> dict[str, SystemScores]:
    """Translate a test set with finished runs, each by the search of its own test sets, and score it.

    Args:
        runs: one or more folders of runs with weights.
        src: the source text, one sentence per line, plain, .gz or .zst.
        references: one or more files of references, with as many lines.
        out: a folder for the translations, RUN.hyp; by default they are not kept.
        device: where the models compute: cpu or cuda.

    Returns:
        The scores by folder, in the order of ``runs``, by all metrics.

    Raises:
        OSError: a file cannot be read or written, or one of the translations exists already.
        ValueError: a text that cannot be read or has another number of lines, a run whose model cannot be
            loaded, or two runs of one name with ``out``.
    """
    folders, src, reference_paths = as_paths(runs), Path(src), as_paths(references)
    files = _new_files(folders, Path(out)) if out is not None else {}
    with ensure_unchanged(src, *reference_paths):
        lines = read_lines(src)
        texts = [read_lines(path) for path in reference_paths]
    for path, text in zip(reference_paths, texts, strict=True):
        if len(text) != len(lines):
            raise line_count_error(src, len(lines), path, len(text))
    scores, texts_of = {}, {}
    for folder in folders:
        translator = load_model(folder, device)
        logger.info(f"{folder}: translating {len(lines):,} sentences")
        texts_of[folder] = translator.translate(lines)
        scores[str(folder)] = score_texts(texts_of[folder], *texts, scoring=all_metrics())
    for folder, path in files.items():  # after all runs, so that the same command can be given again
        write_atomically(path, "".join(f"{line}\n" for line in texts_of[folder]))
    return scores


def _new_files(folders: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Return the file of each run's translations; none of them exists."""
    files = {folder: out / f"{folder.resolve().name}.hyp" for folder in folders}
    for folder, path in files.items():
        if path.exists():
            raise FileExistsError(f"{path} exists already; name another folder with --out")
        if list(files.values()).count(path) > 1:
            raise ValueError(f"{folder} and another run have one name; score them one by one to keep both")
    return files
