# ruff: noqa: E501
"""Put the finished comparison in the place of the earlier one: results, configuration, pages.

    python benchmarks/comparison/runs/publish.py RUNS CORPORA

RUNS is the folder of all runs, timed; CORPORA has the folder multi30k, with exactly the files of RUNS' corpus. Run it
once, at the root of a clean checkout; it removes its own folder (after a failure: git checkout . && git clean -fd). Then fill in what docs/multi30k.md leaves open.
"""

import shutil
import subprocess
import sys
from pathlib import Path

runs, corpora = sys.argv[1:]
root, here = f"data.root={corpora}/multi30k", Path(__file__).parent


def replace(path: str, *pairs: tuple[str, str]) -> None:
    """Replace texts that a file has once."""
    text = Path(path).read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    Path(path).write_text(text, encoding="utf-8")


def compare(*words: str) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "compare", *words, "--set", root], check=True)


compare("publish", runs, "--out", "results/multi30k-en-de", "--replace")

best = here.with_name("best.toml")
HEAD = """\
# Multi30k task 1, English to German: six systems of equal size (3.87 to 3.89 million parameters) and equal updates.
# Needs the raw text, train, val and the three test sets as .en and .de, plain or .gz:
#     attnbench run configs/multi30k-en-de.toml --set data.root=FOLDER --seeds 101,102,103
# The plan stands in benchmarks/comparison/plan.md; learning rates and dropouts are those that its search found (search.md).

"""
settings = best.read_text(encoding="utf-8")
settings = settings[settings.index("[data]") :].replace(
    "[[models]]", '[scoring]\nbaseline = "transformer"\n\n[[models]]', 1
)
lines = ['root = "../multi30k"' if line.startswith("root = ") else line for line in settings.splitlines()]
Path("configs/multi30k-en-de.toml").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
best.unlink()
replace(
    "benchmarks/comparison/en-de.toml",
    ("`best.toml` has what\n# it found.", "configs/multi30k-en-de.toml\n# has what it found."),
)

shutil.rmtree("results/multi30k-tuning")
entries = Path("results/results.toml").read_text(encoding="utf-8")
before, after = entries[: entries.index("[multi30k-tuning]")], entries[entries.index("[alignment]") :]
ENTRY = '''\
[multi30k-en-de]
about = """\\
Multi30k, English to German: six systems of equal size and equal updates, five seeds (the LSTM three), each run on one core"""
minutes = 560
commands = [
    """\\
    OMP_NUM_THREADS=1 attnbench run configs/multi30k-en-de.toml --set data.root=$CORPORA/multi30k --seeds 101,102,103 \\
    --jobs 2 --out runs/multi30k-en-de""",
    """\\
    OMP_NUM_THREADS=1 attnbench run configs/multi30k-en-de.toml --set data.root=$CORPORA/multi30k \\
    --seeds 101,102,103,104,105 --only bahdanau,luong-general,luong-scaled-dot-4-heads,transformer,transformer-modern \\
    --jobs 2 --out runs/multi30k-en-de""",
    "attnbench publish runs/multi30k-en-de --set data.root=$CORPORA/multi30k --out results/multi30k-en-de --replace",
]

'''
Path("results/results.toml").write_text(before + ENTRY + after, encoding="utf-8")

replace(
    "README.md",
    (
        "trained until validation stops improving, for 24,600 updates at most (",
        "six systems of equal size, searched with equal effort and trained for equally many updates (",
    ),
)
replace(
    "docs/method.md",
    (
        "nothing is chosen by it. One exception is on record: the range of length\n"
        "  penalties of [Multi30k](multi30k.md#how-the-settings-were-chosen).",
        "nothing is chosen by it.",
    ),
)
replace(
    "docs/limits.md",
    ("- *Three seeds at most*, and one in `alignment`.", "- *Three to five seeds*, and one in `alignment`."),
    (
        "Multi30k's models were tuned briefly ([how](multi30k.md#how-the-settings-were-chosen)), those",
        "Multi30k's models were tuned by six draws each ([record](../benchmarks/comparison/search.md)), those",
    ),
)
replace(
    "tests/test_pages.py",
    (
        "@pytest.mark.slow\ndef test_tables_are_those_of_the_result_files():",
        '''\
@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """The corpora of the pages, where they are present: Multi30k with all of its test sets in one folder."""
    (tmp_path / "multi30k").mkdir()
    for path in [*SHARED.glob("multi30k/*.gz"), *SHARED.glob("multi30k-2017/*.gz")]:
        (tmp_path / "multi30k" / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.slow
def test_tables_are_those_of_the_result_files(corpora: Path):''',
    ),
    ('made["regenerate"](text, SHARED) == text', 'made["regenerate"](text, corpora) == text'),
)
(here / "page.md").replace("docs/multi30k.md")
for seed in (1, 3):
    Path(f"docs/images/multi30k/attention-seed{seed}.png").unlink()
shutil.rmtree(here)
subprocess.run(["make", "pages", f"CORPORA={corpora}"], check=True)
