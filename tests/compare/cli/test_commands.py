"""The command line: what each command prints, and what people see of training."""

import csv
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from compare.cli import main
from compare.models.presets import PRESETS
from compare.models.registry import build, forward_flops
from compare.results.columns import SPREADS
from compare.results.store import Result
from compare.scoring.score import corpus_bleu
from compare.system.log import Reporter, log_to_file
from tests.kits.cli import ROWS, real
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"


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
        figures = {name: value for name, value in true.items() if name not in ("tests", "files", "scores")}
        figures |= true.get("scores", {})
        assert {name: row[name] for name in figures} == figures
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
    assert main(["score", str(references), "--ref", str(references), "-m", "bleu,ter"]) == 0
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
    assert list(found) == sorted(PRESETS, key=lambda name: PRESETS[name].paper_size)
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
    assert "score = general" in out
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
    """JSON lacks what is unknown: figures of GPUs, of several processes and of options not taken."""
    unknown = {
        "reason",
        "energy_j_per_1k_tokens",
        "budget",
        "budget_off",
        "recurrent_precision",
        "reproducible",
    }
    unknown |= {"init_hash", "average_every", "ema", "consistency", "subword_sampling"}
    unknown |= {"accumulate", "processes", "devices", "nodes", "tests"}  # of one process, of one test set
    unknown |= {"together_tokens_per_s", "together_tokens_per_s_per_device"}
    unknown |= {"train_mfu", "latency_ms_p95"}  # of a processor; of fewer than 100 sentences
    unknown |= {f"{name}_{end}" for name in SPREADS for end in ("low", "high")}  # of a single repeat
    for row in ROWS:
        result = json.loads((finished / row / "result.json").read_text())
        names = {item.name for item in fields(Result)} - {"scores"}
        assert names - unknown <= result.keys()
        assert None not in [value for name, value in result.items() if name not in unknown]


# --- messages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def metrics_lines() -> Iterator[dict[str, object]]:
    for update in (1, 2):
        yield {"kind": "train", "update": update, "seconds": 1.0, "loss": 2.5, "tokens_per_s": 1234.0}
    yield {"kind": "valid", "update": 2, "seconds": 1.0, "loss": 2.25, "bleu": 12.0}
    yield {"kind": "average", "update": 2, "seconds": 1.0, "loss": 2.0, "bleu": 12.5}
    yield {"kind": "final", "update": 2, "seconds": 1.0, "chosen": "update 2", "loss": 2.25, "bleu": 12.0}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_people_see_how_training_goes(
    terminal: bool,
    quiet: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    show_log: Callable[..., None],
):
    """A bar on a terminal, lines elsewhere, nothing when quiet; the log gets every line but the bar's."""
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    show_log(quiet=quiet)
    logger, reporter = logging.getLogger("compare.somewhere"), Reporter(quiet=quiet)
    with log_to_file(tmp_path / "log.txt"), reporter.training("lstm", 2) as report:
        for line in metrics_lines():
            report(line)
        logger.info("[red]as it is[/red]")
    logger.info("afterwards")
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
