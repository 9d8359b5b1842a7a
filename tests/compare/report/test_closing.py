"""What `run` shows below its table."""

import shutil
from pathlib import Path

from compare.report.closing import WIDTH, length_chart, show_closing
from tests.kits.runs import ROWS


def test_bars_are_as_long_as_the_mean_over_seeds():
    scores = {("a", 1, "1–5"): 40.0, ("a", 2, "1–5"): 60.0, ("a", 1, "6–9"): 0.0, ("a", 2, "6–9"): 0.0}
    rows = [
        {"label": label, "seed": seed, "source_words": words, "bleu": bleu}
        for (label, seed, words), bleu in scores.items()
    ]
    *_, line = length_chart(rows).splitlines()
    assert line.split() == ["a", "50", "######", "0"]


def test_it_shows_each_model_and_the_picture(finished: Path, tmp_path: Path):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    text = show_closing(folder)
    assert (folder / "plots" / "length.png").is_file()
    assert all(
        name in text for name in ("reference", ROWS[0].partition("-seed")[0], " report ", "length.png")
    )
    assert all(len(line) <= WIDTH for line in text.splitlines() if str(folder) not in line)
