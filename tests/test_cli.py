"""The command line: what each command prints, and that a mistake is one line and exit status 2."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.flops import forward_flops
from compare.models import build
from compare.presets import PRESETS
from compare.progress import Reporter
from compare.results import Result
from compare.score import corpus_bleu

ROOT = Path(__file__).resolve().parent.parent
WMT17 = ROOT.parent / "shared" / "data" / "scored-wmt17-en-de"
ROWS = ("luong-seed1", "transformer-seed1")

Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Runs a command that must be refused; gives what follows "error: "."""

    def refuse(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert captured.err.endswith("\n")
        return captured.err.removeprefix("error: ").rstrip("\n")

    return refuse


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


# --- run: mistakes in the config and on the command line


def edited(tiny_toml: Path, folder: Path, old: str, new: str) -> Path:
    text = tiny_toml.read_text()
    assert old in text
    path = folder / "edited.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("luong-general", "luong-generl", ["models.luong", "did you mean 'luong-general'?"]),
        ("num_heads = 2", "num_heads = 3", ["d_model (16) must be a multiple of num_heads (3)"]),
        ("d_model = 16", "d_model = 0", ["d_model must be at least 1"]),
        ("hidden_size = 16", "hidden_size = 15", ["hidden_size (15) must be even"]),
        ("valid_every", "valid_evry", ["'train.valid_evry'", "'train.valid_every'"]),
        ("[bench]", "[bnech]", ["'bnech'", "'bench'"]),
        ("[bench]", "[bench", ["not TOML"]),
    ],
)
def test_a_config_that_cannot_be(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, old: str, new: str, parts: list[str]
):
    path = edited(tiny_toml, tmp_path, old, new)
    for command in (["run", path, "--out", tmp_path / "a" / "b"], ["bench", path]):
        message = refusal(*command)
        assert message.startswith(str(path))
        assert all(part in message for part in parts)
    assert list(tmp_path.iterdir()) == [path]


def test_a_config_that_is_no_file(tmp_path: Path, refusal: Refusal):
    for command in ("run", "bench"):
        assert refusal(command, tmp_path / "no.toml") == f"{tmp_path / 'no.toml'}: No such file or directory"
        assert refusal(command, tmp_path) == f"{tmp_path}: Is a directory"


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("train.max_updates", "must look like section.key=value"),
        ("train.max_update=3", "did you mean 'train.max_updates'?"),
        ("trian.seed=3", "did you mean 'train'?"),
        ("train.seed=x", "must be int"),
        ("train.batch_tokens=0", "at least 1"),
        ("train.batch_tokens=5", "batch_tokens (5) must hold the longest target (8 tokens with EOS)"),
        ("data.max_tokens=1", "max_tokens (1) leaves none of 400 pairs"),
        ("data.tgt=fr", "has no counterpart train.fr"),
        ("vocabulary.kind=unigram", "the largest possible size is"),
        ("data.root=/no/such/folder", "/no/such/folder: no such folder"),
    ],
)
@pytest.mark.parametrize("rehearsed", [False, True])
def test_a_setting_that_cannot_be_leaves_nothing(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, setting: str, part: str, rehearsed: bool
):
    """Found in the config, in the corpus, in the vocabulary or once all is encoded: no folder is left."""
    command = ["run", tiny_toml, "--out", tmp_path / "a" / "b", "-q", "--set", setting]
    assert part in refusal(*command, *(["--dry-run"] if rehearsed else []))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what the test asks for")
def test_a_gpu_that_is_not_there(tiny_toml: Path, finished: Path, tmp_path: Path, refusal: Refusal):
    command = ["run", tiny_toml, "--out", tmp_path / "run", "--set", "train.device=cuda"]
    assert "torch finds no GPU" in refusal(*command)
    assert not list(tmp_path.iterdir())
    assert "'cuda' cannot be used" in refusal("translate", finished / ROWS[0], "--device", "cuda")


def corpus_with(tiny_toml: Path, tmp_path: Path, name: str, content: bytes | None) -> Path:
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    if content is None:
        (root / name).unlink()
    else:
        (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("train.de", b"nur eine\n", ["train.en has 400 lines but", "train.de has 1"]),
        ("valid.de", None, ["valid.en has no counterpart valid.de"]),
        ("test.de", b"", ["test.de is empty"]),
        ("test.de", b"a\n\nb\n", ["test.de, line 2: the line is empty"]),
        ("valid.en", b"a\nb \xff\n", ["valid.en, line 2, byte 3: 0xff is not UTF-8"]),
        ("test.de.gz", gzip.compress(b"a\n"), ["two versions of one text"]),
    ],
)
@pytest.mark.parametrize("existing", [False, True])
def test_a_corpus_that_cannot_be_used_leaves_nothing(
    tiny_toml: Path,
    tmp_path: Path,
    refusal: Refusal,
    name: str,
    content: bytes | None,
    parts: list[str],
    existing: bool,
):
    root = corpus_with(tiny_toml, tmp_path, name, content)
    out = tmp_path / "out"
    if existing:
        (out / "encoded").mkdir(parents=True)
    before = files(tmp_path)
    message = refusal("run", tiny_toml, "--out", out, "-q", "--set", f"data.root={root.as_posix()}")
    assert all(part in message for part in parts)
    assert files(tmp_path) == before


def test_a_place_that_is_no_folder(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    (tmp_path / "file").write_text("mine")
    assert "no folder" in refusal("run", tiny_toml, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# --- run: mistakes in a folder that is there


def test_a_folder_of_another_experiment(tiny_toml: Path, copy: Path, refusal: Refusal):
    before = files(copy)
    message = refusal("run", tiny_toml, "--out", copy, "-q", "--set", "train.clip_norm=2")
    assert "holds another experiment (clip_norm = 1.0 there, clip_norm = 2.0 here)" in message
    assert files(copy) == before


def test_a_folder_begun_with_other_data(tiny_toml: Path, copy: Path, tmp_path: Path, refusal: Refusal):
    """A new seed has rows of its own, but they would stand in one table with the old ones."""
    root = corpus_with(tiny_toml, tmp_path, "valid.de", b"Hund\n" * 8)
    before = files(copy)
    settings = ["--set", f"data.root={root.as_posix()}", "--set", "train.seed=2"]
    for more in ([], ["--dry-run"]):
        message = refusal("run", tiny_toml, "--out", copy, "-q", *settings, *more)
        assert "was begun with other data (data_hash " in message
        assert files(copy).keys() == before.keys()


@pytest.mark.parametrize(
    ("name", "content", "commands", "part"),
    [
        ("config.toml", b"\xff", ["run"], "holds another experiment"),
        ("config.toml", b"[x", ["run"], "holds another experiment"),
        ("config.toml", b"[x", ["plot", "translate"], "config.toml: not TOML"),
        ("result.json", b"{", ["run", "table", "plot"], "result.json: not a result row"),
        ("result.json", b"", ["run", "table", "plot"], "result.json: not a result row"),
        ("result.json", b"[]", ["run", "table", "plot"], "result.json: expected one JSON object"),
        ("../experiment.json", b"[]", ["run", "table", "plot"], "experiment.json: expected one JSON object"),
        ("../experiment.json", b"\xff", ["run", "table"], "experiment.json: expected one JSON object"),
        ("vocabulary.json", b"{}", ["plot", "translate"], "vocabulary.json: holds neither"),
        ("checkpoints/final.safetensors", b"x", ["plot", "translate"], "not a readable safetensors file"),
        ("../test.src", b"\xff\n", ["plot"], "test.src, line 1, byte 1: 0xff is not UTF-8"),
    ],
)
def test_a_damaged_file_is_named(
    tiny_toml: Path, copy: Path, refusal: Refusal, name: str, content: bytes, commands: list[str], part: str
):
    (copy / ROWS[0] / name).write_bytes(content)
    known = {
        "run": ["run", tiny_toml, "--out", copy, "-q"],
        "table": ["table", copy],
        "plot": ["plot", copy, "-q"],
        "translate": ["translate", copy / ROWS[0]],
    }
    before = files(copy / ROWS[1])
    for command in commands:
        assert part in refusal(*known[command])
    assert files(copy / ROWS[1]) == before


def test_a_damaged_state_is_named(tiny_toml: Path, copy: Path, refusal: Refusal):
    (copy / ROWS[0] / "result.json").unlink()
    (copy / ROWS[0] / "checkpoints" / "trainer.pt").write_bytes(b"x")
    message = refusal("run", tiny_toml, "--out", copy, "-q")
    assert "trainer.pt: damaged trainer state" in message
    assert not (copy / ROWS[0] / "result.json").exists()


# --- the other commands' mistakes


def test_folders_without_runs(tmp_path: Path, finished: Path, refusal: Refusal):
    for folder in (tmp_path, tmp_path / "absent"):
        for command in ("table", "plot"):
            assert "holds no runs" in refusal(command, folder)
    for folder in (tmp_path, tmp_path / "absent", finished):
        assert "no config.toml: give the folder of one run" in refusal("translate", folder)


def test_scores_of_two_signatures(finished: Path, copy: Path, refusal: Refusal):
    path = copy / ROWS[1] / "result.json"
    path.write_text(path.read_text().replace("case:mixed", "case:lc"))
    for folders in ([copy], [copy / ROWS[1], finished]):
        assert "comparable under one signature only" in refusal("table", *folders)


def test_names_of_forms_and_columns(finished: Path, refusal: Refusal):
    assert "choose markdown, csv, json" in refusal("table", finished, "--form", "xml")
    assert "did you mean 'bleu'?" in refusal("table", finished, "--columns", "label,blue")
    assert "line 9 is not in the test set" in refusal("plot", finished, "-q", "--line", "9")
    assert "line 0 is not in the test set" in refusal("plot", finished, "-q", "--line", "0")


def test_texts_that_cannot_be_scored(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    corpus = tiny_toml.parent / "corpus"
    message = refusal("score", corpus / "test.de", "--ref", corpus / "train.de")
    assert message.startswith("8 lines of hypotheses but 400 of references")
    assert "no such file" in refusal("score", tmp_path / "absent", "--ref", corpus / "test.de")
    assert "no such file" in refusal("score", tmp_path, "--ref", corpus / "test.de")
    (tmp_path / "empty").touch()
    assert "is empty" in refusal("score", tmp_path / "empty", "--ref", corpus / "test.de")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "Commands:"),
        (["run"], "Missing argument"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "x.toml", "--dryrun"], "No such option: --dryrun"),
        (["bench", "x.toml", "--updates", "0"], "--updates"),
        (["translate", "x", "--beam", "0"], "--beam"),
        (["score", "x"], "--ref"),
        (["table"], "Missing argument"),
    ],
)
def test_usage_is_explained(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert part in captured.err
    assert "Usage:" in captured.err
    assert "Traceback" not in captured.err


def test_a_fault_of_ours_is_not_passed_off_as_the_users(tiny_toml: Path, monkeypatch: pytest.MonkeyPatch):
    def faulty(*_: object, **__: object) -> None:
        raise KeyError("key")

    monkeypatch.setattr("compare.score.score", faulty)
    references = str(tiny_toml.parent / "corpus" / "test.de")
    with pytest.raises(KeyError):
        main(["score", references, "--ref", references])


def real(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "compare", *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=120
    )


def test_a_real_process_ends_with_status_2_and_one_line(tmp_path: Path):
    done = real("table", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {tmp_path} holds no runs")


def test_a_reader_that_leaves_early_is_no_mistake():
    """As in `attnbench models | head -0`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "compare", "models"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


# --- what the commands print


def test_all_forms_of_the_table_agree(finished: Path, capsys: pytest.CaptureFixture[str]):
    texts = {}
    for form in ("markdown", "csv", "json"):
        assert main(["table", str(finished), "--form", form]) == 0
        texts[form] = capsys.readouterr().out
        assert texts[form].endswith("\n")
        assert not texts[form].endswith("\n\n")
    assert main(["table", str(finished), "--json"]) == 0
    assert capsys.readouterr().out == texts["json"]
    rows = json.loads(texts["json"])
    by_csv = list(csv.DictReader(io.StringIO(texts["csv"])))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in texts["markdown"].splitlines()[2:4]]
    truth = [json.loads((finished / row / "result.json").read_text()) for row in ROWS]
    assert len(rows) == len(by_csv) == len(lines) == 2
    for row, cells, line, true in zip(rows, by_csv, lines, truth, strict=True):
        assert {name: row[name] for name in true if name != "tests"} == {
            name: value for name, value in true.items() if name != "tests"
        }
        assert float(cells["bleu"]) == true["bleu"]
        assert (cells["label"], int(cells["updates"])) == (true["label"], 90)
        assert line[0] == true["label"]
        assert f"{true['bleu']:.1f} [{true['bleu_ci_low']:.1f}, {true['bleu_ci_high']:.1f}]" in line


def test_two_experiments_in_one_table(finished: Path, copy: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(finished), str(copy / ROWS[1]), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["experiment"], row["label"]) for row in rows] == [
        ("run", "luong"),
        ("run", "transformer"),
        ("copy", "transformer"),
    ]
    assert main(["table", str(finished), str(copy)]) == 0
    header, _, *lines = (line.split("|") for line in capsys.readouterr().out.splitlines()[:6])
    column = [cell.strip() for cell in header].index("experiment")
    assert [line[column].strip() for line in lines] == ["run", "run", "copy", "copy"]


def test_a_table_without_the_list_of_runs(copy: Path, capsys: pytest.CaptureFixture[str]):
    (copy / "experiment.json").unlink()
    assert main(["table", str(copy), "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == ["luong", "transformer"]


@pytest.mark.parametrize("row", ROWS)
def test_translating_the_test_set_gives_its_hypotheses(finished: Path, row: str):
    done = real("translate", finished / row, stdin=(finished / "test.src").read_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (finished / row / "test.hyp").read_text()


def test_hypotheses_are_scored_even_where_a_model_wrote_nothing(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    references = tiny_toml.parent / "corpus" / "test.de"
    lines = references.read_text().splitlines()
    lines[3] = ""
    (tmp_path / "test.hyp").write_text("\n".join(lines) + "\n")
    assert main(["score", str(tmp_path / "test.hyp"), "--ref", str(references), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bleu"] == corpus_bleu(lines, references.read_text().splitlines())
    assert found["ter"] is None
    assert 0 < found["bleu_ci_low"] <= found["bleu"] < 100
    assert main(["score", str(references), "--ref", str(references), "--ter"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("BLEU  100.00 [100.00, 100.00]  nrefs:1|")
    assert "TER    0.00" in text


def test_a_published_score_is_met_to_its_last_place(capsys: pytest.CaptureFixture[str]):
    if not WMT17.is_dir():
        pytest.skip("needs scored-wmt17-en-de beside the checkout")
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        published = {row["system"]: row["MTEVAL"] for row in csv.DictReader(file, delimiter="\t")}
    assert main(["score", str(WMT17 / "sys/online-F.0.de.gz"), "--ref", str(WMT17 / "ref.de.gz")]) == 0
    assert capsys.readouterr().out.startswith(f"BLEU  {published['online-F.0']} [")


def test_the_presets_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["models"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] != []]
    found = {line.split()[0]: line for line in lines if line.split()[0] in PRESETS}
    assert list(found) == list(PRESETS)
    assert all(PRESETS[name].source in line for name, line in found.items())
    assert main(["models", "--json", "--vocabulary", "5000"]) == 0
    rows = {row["preset"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(PRESETS)
    row, architecture = rows["transformer"], PRESETS["transformer"].architecture
    made = build(architecture, 5000, 5000)
    assert row["params"] == sum(weight.numel() for weight in made.parameters())
    assert row["forward_flops"] == forward_flops(architecture, src_len=20, tgt_len=20, tgt_vocabulary=5000)


def test_a_preset_is_taken_apart(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "luong-local-p", "--vocabulary", "50"]) == 0
    out = capsys.readouterr().out
    assert "scope = local-p" in out
    assert "GeneralScore: s W h" in out
    assert re.search(r"^ +output +Linear +12,850 +2 x 6 x 50$", out, re.MULTILINE)  # 256 x 50 + 50
    assert main(["models", "luong-local-p", "--vocabulary", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tree"][0]["params"] == sum(
        weight.numel() for weight in build(PRESETS["luong-local-p"].architecture, 50, 50).parameters()
    )
    assert main(["models", "luong-locl-p"]) == 2
    assert "did you mean 'luong-local-p'?" in capsys.readouterr().err


def test_the_doctor_speaks_json(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"python", "torch", "cpu"} <= {finding["topic"] for finding in findings}
    assert main(["doctor"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(findings)


def test_every_field_of_a_row_is_known_in_the_end(finished: Path):
    """What only some machines or choices give may be null: no other figure may be missing."""
    optional = {"reason", "ter", "ter_signature", "energy_j_per_1k_tokens"}
    for row in ROWS:
        result = json.loads((finished / row / "result.json").read_text())
        assert result.keys() == {item.name for item in fields(Result)}
        assert {name for name, value in result.items() if value is None} <= optional


# --- messages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def metrics_lines() -> Iterator[dict[str, object]]:
    for update in (1, 2):
        yield {"kind": "train", "update": update, "seconds": 1.0, "loss": 2.5, "tokens_per_s": 1234.0}
    yield {"kind": "valid", "update": 2, "seconds": 1.0, "loss": 2.25, "bleu": 12.0}
    yield {"kind": "average", "update": 2, "seconds": 1.0, "loss": 2.0, "bleu": 12.5}
    yield {"kind": "final", "update": 2, "seconds": 1.0, "chosen": "update 2", "bleu": 12.0}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_people_see_how_training_goes(
    terminal: bool, quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A bar on a terminal, lines elsewhere, nothing when quiet; the log gets every line but the bar's."""
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    reporter = Reporter(quiet=quiet)
    with reporter.logging_to(tmp_path / "log.txt"), reporter.training("lstm", 2) as report:
        for line in metrics_lines():
            report(line)
        reporter.say("[red]as it is[/red]")
    reporter.say("afterwards")
    shown, log = stream.getvalue(), (tmp_path / "log.txt").read_text()
    assert ("validation loss 2.250, BLEU 12.00" in shown) is not quiet
    assert ("[red]as it is[/red]" in shown) is not quiet
    assert ("━" in shown) is (terminal and not quiet)
    assert ("lstm 2/2 1 s: loss 2.500, 1,234 tokens/s\n" in shown) is not (terminal or quiet)
    assert shown.endswith("afterwards\n") is not quiet
    assert bool(shown) is not quiet
    assert "validation loss 2.250, BLEU 12.00" in log
    assert "keeps update 2" in log
    assert "as it is" in log
    assert "afterwards" not in log
