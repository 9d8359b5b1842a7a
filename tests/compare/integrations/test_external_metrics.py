"""``score --external``: scores of programs outside and of files, beside BLEU; failures are one line."""

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from compare.cli import main
from compare.integrations.external_metrics import COMET_MODEL, COMET_PACKAGE
from tests.kits.cli import Refusal

HYPOTHESES = {"a": ["the cat sat", "hello", "x y"], "b": ["a cat", "hello you", "x"]}
PROGRAM = """
import sys
source, hypothesis = (open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:3])
print("# length|version:7")
for one, two in zip(source, hypothesis, strict=True):
    print(len(two.split()) / len(one.split()))
"""
COMET = """
import json, sys
after = lambda name: sys.argv[sys.argv.index(name) + 1]
options = {name: after(name) for name in ("--from", "--model", "-s", "-r", "--to_json")}
files = sys.argv[sys.argv.index("-t") + 1 : sys.argv.index("--to_json")]
read = lambda path: open(path, encoding="utf-8").read().splitlines()
scores = {}
for path in files:
    rows = zip(read(options["-s"]), read(path), read(options["-r"]), strict=True)
    scores[path] = [{"src": s, "mt": h, "ref": r, "COMET": 0.5 + 0.1 * (h == r)} for s, h, r in rows]
json.dump(scores, open(options["--to_json"], "w"))
print("Predictions saved in:", options["--to_json"], options["--from"], options["--model"])
"""


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two systems, one compressed, with a reference and a source, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in HYPOTHESES["a"]))
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in HYPOTHESES["b"]).encode()))
    (tmp_path / "ref").write_text("the cat sat\nhello you\nx y z\n")
    (tmp_path / "src").write_text("a b c\na\na b\n")
    (tmp_path / "length.py").write_text(PROGRAM)
    return ["score", "a", "b.gz", "--ref", "ref", "-m", "chrf", "--src", "src"]


def program(arguments: str = "length.py {src} {hyp}") -> list[str]:
    return ["--external", f"length='{sys.executable}' {arguments}"]


def test_a_program_gives_a_column_with_its_signature(texts: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*texts, *program(), "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert one["length"] == pytest.approx((1 + 1 + 1) / 3)
    assert two["length"] == pytest.approx((2 / 3 + 2 + 1 / 2) / 3)
    assert one["length_signature"] == two["length_signature"] == "length|version:7"
    assert one["chrf"] != two["chrf"]
    assert main([*texts, *program()]) == 0
    table = capsys.readouterr().out
    assert "length |" in table
    assert "- length: length\\|version:7" in table or "- length: length|version:7" in table


def test_files_of_scores_do_the_same(texts: list[str], capsys: pytest.CaptureFixture[str]):
    Path("a.scores").write_text("# human|raters:3\n80\n90.5\n70\n")
    Path("b.scores").write_text("# human|raters:3\n1\n2\n3\n")
    texts = texts[: texts.index("--src")]
    assert main([*texts, "--src", "src", "--external", "human=a.scores,b.scores", *program(), "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert (one["human"], two["human"]) == (pytest.approx(240.5 / 3), 2)
    assert one["human_signature"] == "human|raters:3"
    assert one["length"] == 1
    assert main(["score", "a", "--ref", "ref", "--external", "human=a.scores"]) == 0
    assert "human  80.17  human|raters:3" in capsys.readouterr().out
    Path("plain").write_text("1\n2\n3\n")
    assert main(["score", "a", "--ref", "ref", "--external", "threads=plain"]) == 0
    assert "threads   2.00  threads|file:plain" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uvx is a script with a #! line")
def test_comet_is_run_once_for_all_systems(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Path("bin").mkdir()
    Path("bin/uvx").write_text(f"#!{sys.executable}\n{COMET}")
    Path("bin/uvx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}{os.pathsep}{os.environ['PATH']}")
    assert main([*texts, "--external", "comet", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert (one["comet"], two["comet"]) == (pytest.approx(160 / 3), pytest.approx(160 / 3))
    assert COMET_MODEL in one["comet_signature"]
    assert COMET_PACKAGE.replace("==", ":") in one["comet_signature"]


def test_mistakes_are_one_line(texts: list[str], refusal: Refusal, monkeypatch: pytest.MonkeyPatch):
    Path("short").write_text("1\n2\n")
    Path("words").write_text("1\ntwo\nnan\n")
    Path("fails.py").write_text("import sys\nprint('a\\nno model', file=sys.stderr)\nsys.exit(3)\n")
    one = ["score", "a", "--ref", "ref", "--external"]
    assert refusal(*one, "human=short") == "human: 2 scores for 3 lines of a"
    assert refusal(*one, "human=words") == "words: score 2 is no number: 'two'"
    assert "known is comet; else give NAME=COMMAND" in refusal(*one, "commet")
    assert "none of bleu, chrf" in refusal(*one, "bleu=short")
    assert refusal(*one, "comet") == "--external comet reads the source text: give it with --src"
    assert "2 files of scores for 1 systems" in refusal(*one, "human=short,words")
    assert "no_such_program cannot be started" in refusal(*one, "human=no_such_program {hyp}")
    failing = program("fails.py {hyp}")[1]
    assert refusal(*one, failing).endswith("failed with status 3: no model")
    assert refusal(*texts, "--ref", "ref", "--external", "comet") == (
        "--external comet takes one reference, found 2"
    )
    assert refusal(*texts) == "--src has no effect without --external: leave it out"
    monkeypatch.setenv("PATH", "")
    assert "install uv (https://docs.astral.sh/uv)" in refusal(*texts, "--external", "comet")


def test_chrf_plus_plus_is_named(texts: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["score", "a", "--ref", "ref", "-m", "chrf,chrf++"]) == 0
    one, two = capsys.readouterr().out.splitlines()
    assert one.startswith("chrF  ")
    assert "nw:0" in one.replace("nc:6|nw:0", "nw:0")
    assert two.startswith("chrF++ ")
    assert "nw:2" in two
