"""``make campaign``: a queue of runs that several processes share, killed and continued without a loss."""

import dataclasses
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import campaign
from benchmarks.queue_file import describe, read_queue
from compare.check.recompute import check_experiment
from compare.experiment import run as run_all
from compare.experiment.publish import SEARCH, publish_experiment
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results, save_result
from compare.results.text import UNKNOWN
from compare.system.signals import LOCK, Interrupted, Terminated
from tests.kits.paths import ROOT
from tests.reliability.contents import differences, leftovers, read_contents

NAMES = ("tiny/luong-seed1", "tiny/transformer-seed1", "tiny/luong-seed2", "other/transformer-seed1")
QUEUE = """
[[runs]]
config = "tiny.toml"
seeds = [1]
minutes = { luong = 2, transformer = 1.5 }

[[runs]]
config = "tiny.toml"
seeds = [2]
minutes = { luong = 2 }

[[runs]]
config = "other.toml"
seeds = [1]
minutes = { transformer = 1 }
"""
HOLD = """
import sys
from pathlib import Path
from compare.system.signals import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def queue(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a queue of four tiny runs of two experiments."""
    folder = tmp_path_factory.mktemp("queue")
    text = tiny_toml.read_text().replace("average = 2", "average = 2\naverage_every = 6\nema = 0.9")
    text = text.replace("max_updates = 90", "max_updates = 30").replace(
        "valid_every = 40", "valid_every = 15"
    )
    for name in ("tiny", "other"):
        (folder / f"{name}.toml").write_text(text)
    (folder / "queue.toml").write_text(QUEUE)
    return folder / "queue.toml"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let another process hold the lock of a run for the time of a block."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.stdin.close()


def work(queue: Path, folder: Path, part: Callable[..., None] = campaign.work, data: str = "") -> str:
    """Finish the queue, or time its models, in this process; returns the messages."""
    with messages() as sent:
        part(str(queue), str(folder), str(folder / "rows"), data)
    return sent.getvalue()


@contextmanager
def messages() -> Iterator[io.StringIO]:
    """Collect the messages of a block."""
    handler = logging.StreamHandler(io.StringIO())
    loggers = [logging.getLogger(name) for name in ("benchmarks", "compare")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler.stream
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def states(queue: Path, folder: Path) -> dict[str, str]:
    return {run.name: describe(run)["status"] for run in read_queue(queue, folder)}


@pytest.fixture(scope="module")
def runs(queue: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the queue's runs, finished; the first run was taken by another process at first."""
    folder = tmp_path_factory.mktemp("runs")
    assert set(states(queue, folder).values()) == {"waiting"}
    taken = folder / "tiny" / "luong-seed1"
    with held(taken):
        sent = work(queue, folder)
        assert "left out" not in sent  # it was not even tried
        found = states(queue, folder)
        assert work(queue, folder, campaign.time_models) == ""  # while a run is being trained
    assert found == dict.fromkeys(NAMES, "done") | {"tiny/luong-seed1": "running at update 0 of 30"}
    assert [result.run for result in read_results(folder / "rows" / "tiny")] == [
        "transformer-seed1",
        "luong-seed2",
    ]
    work(queue, folder)
    for name in ("tiny", "other"):
        assert {result.timed_together for result in read_results(folder / name)} == {None}
    sent = work(queue, folder, campaign.time_models)
    assert "timing 2 models in turn: " in sent
    assert "timing 1 models in turn: transformer" in sent
    return folder


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    """The folder of the runs, to be changed."""
    return Path(shutil.copytree(runs, tmp_path / "runs"))


def run_here(call: Callable[[], None], *_: object) -> list[int]:
    """Call in this process what ``run_processes`` calls in others."""
    function, *arguments = call.args  # type: ignore[attr-defined]
    try:
        function(*arguments)
    except (ValueError, OSError):
        return [2]
    return [0]


def modified(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_every_row_is_published_without_weights(queue: Path, runs: Path):
    assert states(queue, runs) == dict.fromkeys(NAMES, "done")
    assert leftovers(runs) == []
    for name in ("tiny", "other"):
        results, rows = read_results(runs / name), read_results(runs / "rows" / name)
        assert [row.status for row in rows] == ["done"] * len(results)
        assert [(row.run, row.bleu, row.timed_together) for row in rows] == [
            (result.run, result.bleu, result.timed_together) for result in results
        ]
        assert len({row.timed_together for row in rows} - {None}) == 1
        assert not list((runs / "rows").rglob("*.safetensors"))
        assert not check_experiment(runs / name).differences


def test_a_finished_queue_is_not_touched(queue: Path, runs: Path):
    before = modified(runs)
    assert work(queue, runs) == ""
    assert campaign.main(["--queue", str(queue), "--runs", str(runs), "--jobs", "1"]) == 0
    assert modified(runs) == before


def test_rows_are_published_again_only_where_a_result_has_changed(runs: Path, copy: Path):
    """What an earlier ``publish --tuning`` put there is kept."""
    rows = copy / "rows"
    for name in SEARCH:
        (rows / "tiny" / name).write_text("{}")
    (rows / "tiny" / "luong-seed1" / "result.json").unlink()
    before = modified(rows / "other")
    for name in ("tiny", "other"):
        campaign.publish_rows(copy / name, rows)
    assert modified(rows / "other") == before
    assert read_results(rows / "tiny") == read_results(runs / "rows" / "tiny")
    assert [(rows / "tiny" / name).read_text() for name in SEARCH] == ["{}"]


def test_another_machine_trains_what_has_no_row(queue: Path, runs: Path, tmp_path: Path):
    """It has the rows of the first machine, but none of its runs; their speeds stay theirs."""
    rows = tmp_path / "rows"
    shutil.copytree(runs / "rows", rows)
    shutil.rmtree(rows / "tiny" / "luong-seed2")
    kept = {name: read_contents(rows / name) for name in NAMES if name != "tiny/luong-seed2"}
    assert states(queue, tmp_path) == dict.fromkeys(NAMES, "done") | {"tiny/luong-seed2": "waiting"}
    work(queue, tmp_path)
    assert work(queue, tmp_path, campaign.time_models) == ""
    assert states(queue, tmp_path) == dict.fromkeys(NAMES, "done")
    assert [path.name for path in tmp_path.glob("*/*-seed?") if path.parent != rows] == ["luong-seed2"]
    assert {name: read_contents(rows / name) for name in kept} == kept
    one, two = ({result.run: result for result in read_results(each / "tiny")} for each in (runs, rows))
    assert two.keys() == one.keys()
    assert two["luong-seed2"].bleu == one["luong-seed2"].bleu
    assert two["luong-seed2"].timed_together == one["luong-seed1"].timed_together
    assert two["luong-seed2"].beam_sentences_per_s == one["luong-seed1"].beam_sentences_per_s
    registries = [json.loads((each / "tiny" / "experiment.json").read_text()) for each in (runs, rows)]
    assert registries[0]["asked_seeds"] == registries[1]["asked_seeds"]
    before = modified(tmp_path)
    assert work(queue, tmp_path) == ""
    assert modified(tmp_path) == before


@pytest.mark.parametrize(
    ("setting", "difference"),
    [
        ("train.label_smoothing=0.2", "train.label_smoothing: 0.1, here 0.2"),
        ("budget.match=params", "budget.match: none, here params"),
        ("models.luong.dropout=0.4", "model.dropout: "),
    ],
)
def test_rows_with_other_settings_are_not_taken_for_these(
    queue: Path, runs: Path, tmp_path: Path, setting: str, difference: str
):
    shutil.copytree(runs / "rows", tmp_path / "runs" / "rows")
    path = Path(shutil.copytree(queue.parent, tmp_path / "queue")) / "queue.toml"
    changed = f'name = "tiny"\nset = ["{setting}"]\nseeds = '
    path.write_text(QUEUE.replace("seeds = ", changed, 2))
    with pytest.raises(ValueError, match="delete it to train it again") as caught:
        work(path, tmp_path / "runs")
    assert difference in str(caught.value)
    assert not (tmp_path / "runs" / "tiny" / "luong-seed1").exists()


def test_rows_of_matched_models_have_the_settings_that_no_budget_decides(tmp_path: Path):
    """The published rows have an amount and sizes that the queue does not name."""
    text = f"""
[[runs]]
config = "{(ROOT / "configs" / "campaign" / "multi30k-en-de.toml").as_posix()}"
name = "multi30k-en-de-matched"
set = ["budget.match=params", "budget.reference=transformer"]
seeds = [1]
minutes = {{ lstm = 1 }}
"""
    path = tmp_path / "queue.toml"
    path.write_text(text)
    (run,) = read_queue(path, tmp_path / "runs", rows=ROOT / "results")
    assert run.is_done_elsewhere
    path.write_text(text.replace("transformer", 'transformer", "train.label_smoothing=0.2'))
    (run,) = read_queue(path, tmp_path / "runs", rows=ROOT / "results")
    with pytest.raises(ValueError, match=r"label_smoothing: 0\.1, here 0\.2"):
        assert run.is_done_elsewhere


def test_a_run_that_is_too_large_for_the_memory_is_tried_once(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried, run_one = [], run_all.run_one

    def limited(run: RunFolder, *others: Any) -> Result:
        tried.append(run.name)
        if run.name == "luong-seed1":
            raise MemoryError("no room")
        return run_one(run, *others)

    monkeypatch.setattr(run_all, "run_one", limited)
    work(queue, tmp_path)
    assert tried == [name.partition("/")[2] for name in NAMES]
    assert states(queue, tmp_path)["tiny/transformer-seed1"] == "done"


def test_rows_of_another_experiment_are_not_mixed(copy: Path, tmp_path: Path):
    rows = copy / "rows" / "tiny"
    before = read_contents(rows)
    original = (rows / "experiment.json").read_text()
    (rows / "experiment.json").write_text(json.dumps(json.loads(original) | {"data_hash": "0" * 64}))
    with pytest.raises(ValueError, match=r"another experiment \(data_hash 000000000000, here "):
        publish_experiment(copy / "other", rows, add=True)
    (rows / "experiment.json").write_text(original)
    text = (rows / "luong-seed2" / "config.toml").read_text()
    (rows / "luong-seed2" / "config.toml").write_text(
        text.replace("label_smoothing = 0.1", "label_smoothing = 0.2")
    )
    with pytest.raises(ValueError, match=r"label_smoothing: 0\.2, here 0\.1"):
        publish_experiment(copy / "other", rows, add=True)
    (rows / "luong-seed2" / "config.toml").write_text(text)
    assert read_contents(rows) == before
    publish_experiment(copy / "other", rows, add=True)
    assert {result.run for result in read_results(rows)} == {
        "luong-seed1",
        "transformer-seed1",
        "luong-seed2",
    }
    of_other = read_result(copy / "other" / "transformer-seed1").timed_together
    assert read_result(rows / "transformer-seed1").timed_together == of_other


def test_a_damaged_result_leaves_the_others_tried(
    queue: Path,
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    (copy / NAMES[0] / "result.json").write_text("{")
    (copy / NAMES[3] / "result.json").unlink()
    arguments = ["--queue", str(queue), "--runs", str(copy), "--jobs", "1"]
    assert campaign.main([*arguments, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert f"{NAMES[0]} | damaged" in " ".join(listed[2].split())
    assert f"{NAMES[0]}: {copy / NAMES[0] / 'result.json'}: not a result record" in caplog.text
    monkeypatch.setattr(campaign, "run_processes", run_here)
    assert campaign.main(arguments) == 2
    assert capsys.readouterr().err.count(f"error: {copy / NAMES[0] / 'result.json'}") == 1
    assert states(queue, copy) == dict.fromkeys(NAMES, "done") | {NAMES[0]: "damaged"}
    assert {result.timed_together for result in read_results(copy / "other")} != {None}


def test_a_missing_corpus_leaves_the_others_tried(queue: Path, tmp_path: Path):
    folder = Path(shutil.copytree(queue.parent, tmp_path / "queue"))
    for name in ("tiny", "other"):
        text = (folder / f"{name}.toml").read_text()
        (folder / f"{name}.toml").write_text(text.replace("root =", 'root = "absent"\n#'))
    with messages() as sent, pytest.raises(FileNotFoundError):
        campaign.work(str(folder / "queue.toml"), str(tmp_path / "runs"), str(tmp_path), "")
    assert [name in sent.getvalue() for name in NAMES] == [True] * 4


def test_a_failed_run_ends_with_status_1(
    queue: Path, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """One that another process works on is none."""
    for name, status in ((NAMES[2], "failed"), (NAMES[3], "unfinished")):
        result = read_result(copy / name)
        save_result(copy / name, dataclasses.replace(result, status=status, reason="the loss is nan"))
    monkeypatch.setattr(campaign, "run_processes", run_here)
    with held(copy / NAMES[3]):
        assert campaign.main(["--queue", str(queue), "--runs", str(copy), "--jobs", "1"]) == 1
    assert capsys.readouterr().err.endswith(f"{NAMES[2]}: failed: the loss is nan\n")


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), 130), (Terminated(), 143), (Interrupted(signal.SIGTERM, "stopped"), 143)],
)
def test_a_signal_decides_the_status(
    queue: Path, tmp_path: Path, error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch
):
    def train(*_: object) -> int:
        raise error

    monkeypatch.setattr(campaign, "train", train)
    assert campaign.main(["--queue", str(queue), "--runs", str(tmp_path)]) == status


def test_the_list_tells_the_state_of_every_run(
    queue: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(runs, tmp_path / "runs"))
    for name in ("tiny/luong-seed2", "other/transformer-seed1"):
        (folder / name / "result.json").unlink()
        lines = (folder / name / "metrics.jsonl").read_text().splitlines(keepends=True)
        (folder / name / "metrics.jsonl").write_text("".join(lines[:17]))  # 16 updates and a validation
    for experiments in (folder, folder / "rows"):
        shutil.rmtree(experiments / "tiny" / "transformer-seed1")
    (folder / "tiny" / "luong-seed2" / LOCK).touch()  # of a process that was killed
    with held(folder / "other" / "transformer-seed1"):
        before = modified(folder)
        assert campaign.main(["--queue", str(queue), "--runs", str(folder), "--list"]) == 0
        assert modified(folder) == before
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()
    )
    assert head == ["run", "status", "minutes planned", "minutes", "validation BLEU"]
    assert [row[:3] for row in rows] == [
        ["tiny/luong-seed1", "done", "2"],
        ["tiny/transformer-seed1", "waiting", "1.5"],
        ["tiny/luong-seed2", "stopped at update 16 of 30", "2"],
        ["other/transformer-seed1", "running at update 16 of 30", "1"],
    ]
    final = json.loads((folder / NAMES[0] / "metrics.jsonl").read_text().splitlines()[-1])
    assert float(rows[0][4]) == pytest.approx(final["bleu"], abs=0.005)
    assert rows[1][3:] == [UNKNOWN, UNKNOWN]


def test_a_run_of_another_device_is_left_to_it(queue: Path, runs: Path, tmp_path: Path):
    """The others are finished all the same."""
    folder = Path(shutil.copytree(runs, tmp_path / "runs"))
    for name in ("tiny/luong-seed1", "tiny/luong-seed2"):
        (folder / name / "result.json").unlink()
    for name in ("tiny/luong-seed1", "tiny/transformer-seed1"):
        config = folder / name / "config.toml"
        config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda"'))
    with pytest.raises(ValueError, match="luong-seed1 was begun on cuda, and this is cpu: continue it there"):
        work(queue, folder)
    assert states(queue, folder)["tiny/luong-seed2"] == "done"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("luong = 2, ", "lstm = 2, ", "runs[0]: tiny.toml has no model lstm"),
        (
            "seeds = [1]\n",
            "",
            "runs[0] must have config, seeds, minutes, and may have name and set, found config, minutes",
        ),
        (
            "seeds = [1]\n",
            "seeds = [1]\njobs = 2\n",
            "may have name and set, found config, seeds, jobs, minutes",
        ),
        ("seeds = [1]\n", 'seeds = [1]\nset = "x"\n', "set must be a list such as ["),
        (
            "seeds = [1]\n",
            'seeds = [1]\nset = ["train.seed=2"]\n',
            "set needs a name, for tiny is the experiment",
        ),
        ("seeds = [1]\n", 'seeds = [1]\nname = "a/b"\n', "name must be that of a folder, found 'a/b'"),
        ("seeds = [1]\n", 'seeds = [1]\nname = "x"\nset = ["train.sed=2"]\n', "'train.sed'"),
        (
            "seeds = [2]\n",
            'seeds = [2]\nname = "tiny"\nset = ["train.label_smoothing=0.2"]\n',
            "runs[1]: tiny has other settings in an earlier table: name this one",
        ),
        (
            "seeds = [1]\n",
            "seeds = 1\n",
            "runs[0]: seeds must be whole numbers from 0 on, such as [1, 2], found 1",
        ),
        (
            "luong = 2, ",
            "luong = 'x', ",
            "runs[0]: minutes must hold a number for each model, above 0, found {'luong': 'x', 't",
        ),
        ("luong = 2, ", "luong = -2, ", "a number for each model, above 0, found {'luong': -2,"),
        (
            "seeds = [2]",
            "seeds = []",
            "runs[1]: seeds must be whole numbers from 0 on, such as [1, 2], found",
        ),
        ("seeds = [2]", "seeds = [1]", "runs[1]: tiny/luong-seed1 is in the queue already"),
        ('config = "other.toml"', "config = 3", "runs[2]: config must name a file, found 3"),
        ("\n[[runs]]\nconfig", "\njobs = 2\n[[runs]]\nconfig", "unknown key 'jobs': a queue has [[runs]]"),
        (QUEUE, "runs = 3", "runs must be [[runs]] tables, found 3"),
        (QUEUE, "runs = [3]", "runs[0] must be a [[runs]] table, found 3"),
        ("tiny.toml", "tyni.toml", "tyni.toml: No such file or directory"),
        (QUEUE, "", "queue.toml holds no [[runs]]"),
    ],
)
def test_a_mistake_in_a_queue_is_one_line(
    queue: Path, tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(queue.parent, tmp_path / "queue"))
    (folder / "queue.toml").write_text(QUEUE.replace(old, new, 1))
    assert campaign.main(["--queue", str(folder / "queue.toml"), "--list"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_an_experiment_may_have_another_name_and_other_settings(queue: Path, tmp_path: Path):
    changed = 'seeds = [2]\nname = "smooth"\nset = ["train.label_smoothing=0.2", "models.*.dropout=0.4"]'
    path = Path(shutil.copytree(queue.parent, tmp_path / "queue")) / "queue.toml"
    path.write_text(QUEUE.replace("seeds = [2]", changed))
    first, _, other, _ = read_queue(path, tmp_path)
    assert [run.name for run in (first, other)] == ["tiny/luong-seed1", "smooth/luong-seed2"]
    assert other.folder == tmp_path / "smooth" / "luong-seed2"
    assert other.experiment.train.label_smoothing == 0.2
    assert {model.overrides["dropout"] for model in other.experiment.models} == {0.4}
    assert other.experiment.train == dataclasses.replace(first.experiment.train, label_smoothing=0.2)


def test_only_some_experiments_are_trained(queue: Path, runs: Path, tmp_path: Path):
    folder = Path(shutil.copytree(runs, tmp_path / "runs"))
    for name in (NAMES[0], NAMES[3]):
        (folder / name / "result.json").unlink()
    shutil.rmtree(folder / "rows")
    arguments = ["--queue", str(queue), "--runs", str(folder), "--jobs", "1", "--only"]
    assert campaign.main([*arguments, "other"]) == 0
    assert states(queue, folder) | {NAMES[0]: ""} == dict.fromkeys(NAMES, "done") | {NAMES[0]: ""}
    assert states(queue, folder)[NAMES[0]].startswith("stopped")
    assert [path.name for path in (folder / "rows").iterdir()] == ["other"]
    with pytest.raises(ValueError, match="has no experiment othr; did you mean 'other'"):
        read_queue(queue, folder, only=["tiny", "othr"])


def test_the_shipped_queue_can_be_read(tmp_path: Path):
    found = read_queue(campaign.QUEUE, tmp_path, "/corpora")
    corpora = Path("/corpora").resolve()
    assert {Path(run.experiment.data.root) for run in found} == {
        corpora / "multi30k",
        corpora / "wmt-news-en-de",
    }
    assert len({run.name for run in found}) == len(found)
    assert sum(run.minutes for run in found) / 60 < 50  # core-hours


@contextmanager
def started(queue: Path, folder: Path, name: str = "", jobs: int = 1) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a campaign, whose messages go to a file beside its folder; kill it at the end of the block."""
    command = [sys.executable, "-m", "benchmarks.campaign", "--queue", str(queue), "--runs", str(folder)]
    with folder.with_name(f"messages{name}").open("wb") as messages:
        process = subprocess.Popen([*command, "--jobs", str(jobs)], cwd=ROOT, stderr=messages)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def updates(run: Path) -> int:
    """Number of lines of a training log."""
    log = run / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


@pytest.mark.slow
def test_killed_three_times_it_leaves_what_an_unbroken_one_leaves(queue: Path, tmp_path: Path):
    """Killed in the first run, after the first row, and in the last run; then continued by two processes."""
    with started(queue, tmp_path / "whole") as process:
        assert process.wait(timeout=120) == 0
    folder = tmp_path / "killed"
    moments = (
        lambda: updates(folder / NAMES[0]) > 9,
        lambda: (folder / "rows" / "tiny" / "luong-seed1").is_dir(),
        lambda: updates(folder / NAMES[3]) > 20,
    )
    for moment in moments:
        with started(queue, folder) as process:
            wait_until(moment)
            os.kill(process.pid, signal.SIGKILL)
    assert "waiting" not in states(queue, folder).values()
    with started(queue, folder, "1") as one, started(queue, folder, "2") as other:
        assert [each.wait(timeout=120) for each in (one, other)] == [0, 0]
    assert differences(read_contents(folder), read_contents(tmp_path / "whole")) == []
    assert leftovers(folder) == []


@pytest.mark.slow
def test_two_processes_do_no_run_twice(queue: Path, tmp_path: Path):
    """Both begin at once, one is stopped by Ctrl-C later, and a third by SIGTERM."""
    folder = tmp_path / "runs"
    with started(queue, folder, "1") as one, started(queue, folder, "2", jobs=2) as other:
        wait_until(lambda: updates(folder / NAMES[2]) > 5)
        one.send_signal(signal.SIGINT)
        assert one.wait(timeout=120) in (0, 130)
        assert other.wait(timeout=120) in (0, 1)  # 1: it ended while the first still held its run
    with started(queue, folder) as process:
        assert process.wait(timeout=120) == 0
    for experiments in (folder, folder / "rows"):
        shutil.rmtree(experiments / NAMES[3])
    with started(queue, folder, "3") as process:
        wait_until(lambda: updates(folder / NAMES[3]) > 5)
        process.terminate()
        assert process.wait(timeout=120) == 143
    with started(queue, folder) as process:
        assert process.wait(timeout=120) == 0
    assert all(b"Traceback" not in path.read_bytes() for path in tmp_path.glob("messages*"))
    assert states(queue, folder) == dict.fromkeys(NAMES, "done")
    for name in NAMES:
        assert (folder / name / "log.txt").read_text().count("keeps") == 1
