"""Training: repeatable to the bit, resumable in mid-epoch, and plain about what went wrong."""

import dataclasses
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from compare.checkpoint import average, load_state, load_weights, model_weights, save_state, save_weights
from compare.cli import main
from compare.config import TrainConfig, VocabularyConfig
from compare.interrupt import Interrupted
from compare.ledger import Ledger, Validation
from compare.models import build
from compare.objective import Objective
from compare.optim import OptimConfig
from compare.parse import load_experiment
from compare.prepare import build_vocabularies, load_corpus
from compare.train import FINAL, STATE, Diverged, Trainer
from compare.translate import load_model
from data.encoded import encode_split
from data.loader import BatchStream
from seq2seq.config import Seq2SeqConfig

ROWS = ("luong-seed1", "transformer-seed1")
SMALL = Seq2SeqConfig(embedding_size=8, hidden_size=8, dropout=0.3)


def metrics(row: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (row / "metrics.jsonl").read_text().splitlines()]


def same_weights(one: Path, other: Path) -> bool:
    left, right = load_file(one), load_file(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# --- a trainer by itself, told by a script how good its weights are


@pytest.fixture(scope="module")
def stream(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> BatchStream:
    pairs = load_corpus(load_experiment(tiny_toml).data).splits["train"]
    vocabularies = build_vocabularies(pairs, VocabularyConfig(kind="words"))
    split = encode_split(pairs, vocabularies, folder=tmp_path_factory.mktemp("split"), max_tokens=None)
    return BatchStream(split, batch_tokens=64, seed=1)


def trainer(
    stream: BatchStream,
    folder: Path,
    scores: list[Validation],
    report: Callable[[dict[str, Any]], None] = lambda line: None,
    **settings: Any,
) -> Trainer:
    """A trainer whose n-th validation gives ``scores[n]``, and the last of them from then on."""
    given: Iterator[Validation] = iter(scores)
    train = TrainConfig(**{"max_updates": 10, "valid_every": 2, "log_every": 1, **settings})
    torch.manual_seed(train.seed)
    objective = Objective(build(SMALL, 18, 18), train.label_smoothing)
    optim = OptimConfig(learning_rate=1e-2, warmup_updates=2)
    return Trainer(objective, stream, lambda: next(given, scores[-1]), train, optim, folder, report)


def bleus(*values: float) -> list[Validation]:
    return [Validation(loss=3.0, bleu=value) for value in values]


def test_the_same_seed_gives_the_same_weights_after_50_updates(stream: BatchStream, tmp_path: Path):
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (run := trainer(stream, tmp_path / name, bleus(1), max_updates=50, valid_every=50, seed=seed)).run()
        assert run.ledger.update == 50
        found.append(torch.cat([tensor.flatten() for tensor in model_weights(run.model).values()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_best_weights_are_those_of_the_best_bleu(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1, 5, 9, 4, 3))
    ledger = run.run()
    assert (ledger.best_update, ledger.best_bleu, ledger.worse) == (6, 9, 2)
    assert same_weights(tmp_path / "checkpoints" / FINAL, run._snapshot(6))
    kept = load_file(tmp_path / "checkpoints" / FINAL)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model_weights(run.model).items())
    kinds = {path.name for path in run.checkpoints.iterdir()}
    assert kinds == {FINAL, STATE, "update-0000006.safetensors", "update-0000010.safetensors"}


def test_equal_bleu_is_decided_by_loss(stream: BatchStream, tmp_path: Path):
    scores = [Validation(loss=loss, bleu=0.0) for loss in (5.0, 4.0, 4.5, 4.0, 4.2)]
    ledger = trainer(stream, tmp_path, scores).run()
    assert (ledger.best_update, ledger.best_loss, ledger.worse) == (4, 4.0, 3)


def test_training_stops_once_patience_is_used_up(stream: BatchStream, tmp_path: Path):
    scores = bleus(1, 3, 2, 4, 4, 3, 9)  # not at update 6, after one that was worse; at 12, after two
    ledger = trainer(stream, tmp_path / "a", scores, max_updates=40, patience=2).run()
    assert (ledger.update, ledger.best_update, ledger.worse) == (12, 8, 2)
    assert trainer(stream, tmp_path / "b", scores, max_updates=16, patience=0).run().update == 16


def test_the_last_update_is_validated_wherever_it_falls(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1), max_updates=7, valid_every=3).run()
    assert [line["update"] for line in metrics(tmp_path) if line["kind"] == "valid"] == [3, 6, 7]


@pytest.mark.parametrize("last", [9.5, 8.5])
def test_the_average_is_kept_where_validation_prefers_it(stream: BatchStream, tmp_path: Path, last: float):
    run = trainer(stream, tmp_path, bleus(1, 9, 2, 3, 4, last), average=3, max_updates=10)
    ledger = run.run()
    final = load_weights(run.checkpoints / FINAL)
    snapshots = [load_file(run._snapshot(update)) for update in (6, 8, 10)]
    means = {name: torch.stack([one[name].double() for one in snapshots]).mean(0) for name in final}
    assert ledger.best_bleu == max(9, last)
    if last < 9:
        assert same_weights(run.checkpoints / FINAL, run._snapshot(4))
    else:
        for name, tensor in final.items():
            torch.testing.assert_close(tensor.double(), means[name], rtol=0, atol=1e-7)
    assert all(torch.equal(tensor, final[name]) for name, tensor in model_weights(run.model).items())


def test_the_average_of_files_is_the_mean_of_their_tensors(tmp_path: Path):
    tensors = [torch.tensor([1.0, 2e-8]), torch.tensor([3.0, 0.0]), torch.tensor([8.0, 1e-8])]
    for number, tensor in enumerate(tensors):
        save_weights(tmp_path / str(number), {"x": tensor})
    mean = average([tmp_path / str(number) for number in range(3)])["x"]
    torch.testing.assert_close(mean, torch.tensor([4.0, 1e-8]), rtol=1e-6, atol=0)


class Stop(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", [3, 4, 8, 10])
def test_a_signal_stops_after_the_update_and_the_same_call_goes_on(
    stream: BatchStream, tmp_path: Path, at: int
):
    """Update 3 is between two saved states; 10 is the last of all."""

    def interrupt(line: dict[str, Any]) -> None:
        if line["kind"] == "train" and line["update"] == at:
            os.kill(os.getpid(), signal.SIGTERM)

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Interrupted, match=f"update {at} of 10") as caught:
        trainer(stream, tmp_path / "a", bleus(1, 2, 3, 4, 5), interrupt, average=2).run()
    assert caught.value.signum == signal.SIGTERM
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    scores = bleus(*range(1 + at // 2, 6), 5)
    ledger = trainer(stream, tmp_path / "a", scores, average=2).run()
    unbroken = trainer(stream, tmp_path / "b", bleus(1, 2, 3, 4, 5), average=2)
    expected = unbroken.run()
    for counted in (ledger, expected):
        counted.seconds = {}
    assert ledger == expected
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))


def test_a_break_at_any_moment_changes_nothing(stream: BatchStream, tmp_path: Path):
    """Die before and after each line of metrics in turn, in one run, the choice of weights included."""
    steps = {"average": 2, "log_every": 2, "valid_every": 5, "checkpoint_every": 3}  # windows are broken too
    expected = trainer(stream, tmp_path / "b", bleus(1), **steps).run()
    deaths: set[tuple[str, int]] = set()

    def die(line: dict[str, Any]) -> None:
        if (place := (line["kind"], line["update"])) not in deaths:
            deaths.add(place)
            raise Stop

    for _ in range(40):
        try:
            ledger = trainer(stream, tmp_path / "a", bleus(1), die, **steps).run()
        except Stop:
            continue
        break
    assert len(deaths) == 6 + 2 + 2
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))
    assert (ledger.update, ledger.best_update) == (expected.update, expected.best_update)
    for line, other in zip(metrics(tmp_path / "a"), metrics(tmp_path / "b"), strict=True):
        assert (line["kind"], line["update"]) == (other["kind"], other["update"])
        assert (line.get("loss"), line.get("tgt_tokens")) == (other.get("loss"), other.get("tgt_tokens"))


def test_a_line_cut_short_by_the_end_of_the_machine_is_written_again(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    whole = [(line["kind"], line["update"], line.get("loss")) for line in metrics(tmp_path)]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tra')
    trainer(stream, tmp_path, bleus(1)).run()
    assert [(line["kind"], line["update"], line.get("loss")) for line in metrics(tmp_path)] == whole


def test_a_validation_loss_that_is_no_number_ends_the_run(stream: BatchStream, tmp_path: Path):
    with pytest.raises(Diverged, match="validation loss is nan at update 2: lower learning_rate"):
        trainer(stream, tmp_path, [Validation(loss=float("nan"), bleu=1.0)]).run()


def test_padding_takes_no_part_in_the_token_counts(stream: BatchStream, tmp_path: Path):
    ledger = trainer(stream, tmp_path, bleus(1), max_updates=5, valid_every=5, log_every=2).run()
    batches = [batch for batch, _ in zip(stream.epoch(1), range(5), strict=False)]
    src = [int(batch.src_mask.sum()) - len(batch) for batch in batches]
    tgt = [int(batch.tgt_mask.sum()) for batch in batches]
    lines = [line for line in metrics(tmp_path) if line["kind"] == "train"]
    assert ledger.tokens == sum(src) + sum(tgt)
    assert [line["src_tokens"] for line in lines] == [src[0] + src[1], src[2] + src[3], src[4]]
    assert [line["tgt_tokens"] for line in lines] == [tgt[0] + tgt[1], tgt[2] + tgt[3], tgt[4]]


# --- states and weights that cannot be used


class Bomb:
    """Unpickling it would write a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.target, "boom"))


@pytest.mark.parametrize("save", [torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb))])
def test_a_state_that_holds_code_is_refused_and_not_run(stream: BatchStream, tmp_path: Path, save: Any):
    run = trainer(stream, tmp_path, bleus(1))
    save({"ledger": Bomb(tmp_path / "boom")}, run.checkpoints / STATE)
    with pytest.raises(ValueError, match="damaged trainer state") as caught:
        run.run()
    assert not (tmp_path / "boom").exists()
    assert "\n" not in str(caught.value)


def test_a_state_cut_short_or_altered_is_refused(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    path = tmp_path / "checkpoints" / STATE
    content = path.read_bytes()
    for size in [0, 1, 3, 100, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"trainer\.pt: damaged trainer state") as caught:
            load_state(path)
        assert "\n" not in str(caught.value)
    assert load_state(tmp_path / "absent") is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["weights"].popitem(),
        lambda state: state["weights"].update(more=torch.zeros(1)),
        lambda state: state["weights"].update({"output.bias": torch.zeros(1)}),  # would broadcast
        lambda state: state["weights"].update({"output.bias": torch.zeros(19)}),
        lambda state: state.pop("ledger"),
        lambda state: state.pop("weights"),
        lambda state: state["ledger"].update(unheard_of=1),
        lambda state: state["optimizer"]["param_groups"].clear(),
        lambda state: state.update(rng=torch.zeros(3, dtype=torch.uint8)),
    ],
)
def test_the_state_of_another_model_or_program_is_refused(
    stream: BatchStream, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any]
):
    trainer(stream, tmp_path, bleus(1), max_updates=2).run()
    path = tmp_path / "checkpoints" / STATE
    state = load_state(path)
    assert state is not None
    spoil(state)
    save_state(path, state)
    with pytest.raises(ValueError, match=r"trainer\.pt") as caught:
        trainer(stream, tmp_path, bleus(1), max_updates=4).run()
    assert "\n" not in str(caught.value)


@pytest.fixture
def finished_copy(finished: Path, tmp_path: Path) -> Path:
    """A row of the finished experiment that may be spoilt."""
    subprocess.run(["cp", "-r", finished / ROWS[0], tmp_path], check=True)
    return tmp_path / ROWS[0]


def test_damaged_weights_are_refused(finished_copy: Path):
    path = finished_copy / "checkpoints" / FINAL
    content = path.read_bytes()
    for size in [0, 7, 60, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(
            ValueError, match=r"final\.safetensors: not a readable safetensors file"
        ) as caught:
            load_model(finished_copy)
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match=r"final\.safetensors: no such weights"):
        load_model(finished_copy)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda weights: weights.pop("output.bias"), "'output.bias' is in one of them only"),
        (lambda weights: weights.update(other=torch.zeros(2)), "'other' is in one of them only"),
        (lambda weights: weights.update({"output.bias": torch.zeros(1)}), "output.bias is (1,)"),
    ],
)
def test_weights_of_another_size_are_refused(
    finished_copy: Path, change: Callable[[dict[str, torch.Tensor]], Any], reason: str
):
    path = finished_copy / "checkpoints" / FINAL
    weights = load_file(path)
    change(weights)
    save_file(weights, path)
    with pytest.raises(ValueError, match=r"final\.safetensors") as caught:
        load_model(finished_copy)
    assert reason in str(caught.value)


# --- whole experiments


def test_all_rows_of_an_experiment_train_on_the_same_batches(finished: Path):
    results = [json.loads((finished / row / "result.json").read_text()) for row in ROWS]
    assert len({result["batch_hash"] for result in results}) == 1
    assert len({result["data_hash"] for result in results}) == 1
    assert len({result["config_hash"] for result in results}) == 2
    assert {result["status"] for result in results} == {"done"}
    tokens = [
        [
            (line["src_tokens"], line["tgt_tokens"])
            for line in metrics(finished / row)
            if line["kind"] == "train"
        ]
        for row in ROWS
    ]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 90


def test_the_batch_hash_follows_seed_and_budget(stream: BatchStream):
    other = BatchStream(stream._split, batch_tokens=64, seed=2)
    assert stream.stream_hash() == BatchStream(stream._split, batch_tokens=64, seed=1).stream_hash()
    assert len({stream.stream_hash(), other.stream_hash(), stream.stream_hash(2)}) == 3


def test_a_finished_experiment_is_not_touched_again(finished: Path, run_tiny: Callable[..., Path]):
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in finished.rglob("*")}

    before = state()
    assert len(before) > 20
    run_tiny(finished)
    assert state() == before


@pytest.mark.parametrize(
    ("override", "key"),
    [("train.max_updates=91", "max_updates"), ("decode.beam_size=3", "beam_size"), ("data.src=fr", "src")],
)
def test_another_experiment_in_the_same_folder_is_refused(
    finished: Path, run_tiny: Callable[..., Path], override: str, key: str
):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(ValueError, match=f"holds another experiment .*{key} = ") as caught:
        run_tiny(finished, override)
    assert "\n" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_other_data_in_the_same_folder_is_refused(finished: Path, tiny_toml: Path, tmp_path: Path):
    """Another seed makes rows of other names, but the text and its hash must stay."""
    subprocess.run(["cp", "-r", finished, tmp_path / "run"], check=True)
    root = tmp_path / "corpus"
    subprocess.run(["cp", "-r", tiny_toml.parent / "corpus", root], check=True)
    (root / "valid.de").write_text((root / "valid.de").read_text().replace("Hund", "Wolf"))
    arguments = [
        "run",
        str(tiny_toml),
        "--out",
        str(tmp_path / "run"),
        "-q",
        "--set",
        f"data.root={root.as_posix()}",
    ]
    assert main(arguments) == 2  # the row's folder holds another root
    assert main([*arguments, "--set", "train.seed=2"]) == 2
    assert not (tmp_path / "run" / "luong-seed2").exists()


def test_a_row_that_diverges_fails_alone(tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = tiny_toml.read_text().replace("learning_rate = 1e-2", "learning_rate = 1e38")
    (path := tmp_path / "wild.toml").write_text(text)
    command = [
        "run",
        str(path),
        "--out",
        str(tmp_path / "run"),
        "-q",
        "--json",
        "--set",
        "train.max_updates=12",
    ]
    assert main(command) == 1
    failed, done = (json.loads((tmp_path / "run" / row / "result.json").read_text()) for row in ROWS)
    assert (failed["status"], done["status"]) == ("failed", "done")
    assert "NaN or infinite" in failed["reason"]
    assert "lower learning_rate (now 1e+38)" in failed["reason"]
    assert "\n" not in failed["reason"]
    assert failed["bleu"] is None
    assert done["bleu"] is not None
    assert not (tmp_path / "run" / ROWS[0] / "checkpoints" / FINAL).exists()
    assert capsys.readouterr().out


# --- real signals to a real process


@dataclasses.dataclass(frozen=True)
class Broken:
    """An experiment that was ended by SIGTERM in its first row, by SIGKILL in its second, then finished."""

    folder: Path
    status: int
    stderr: str
    stopped: Ledger
    lost: int
    """Updates written to metrics.jsonl after the state that survived SIGKILL."""


def start(tiny_toml: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "compare", "run", str(tiny_toml), "--out", str(folder), "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def signal_in_mid_epoch(process: subprocess.Popen[str], row: Path, signum: signal.Signals) -> None:
    """Send ``signum`` some updates after a saved state, long before the end of the first epoch."""
    path, until = row / "metrics.jsonl", time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") >= 18):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signum)


@pytest.fixture(scope="module")
def broken(
    tiny_toml: Path, run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Broken:
    folder = tmp_path_factory.mktemp("broken") / "run"
    process = start(tiny_toml, folder)
    signal_in_mid_epoch(process, folder / ROWS[0], signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    state = load_state(folder / ROWS[0] / "checkpoints" / STATE)
    assert state is not None
    killed = start(tiny_toml, folder)
    signal_in_mid_epoch(killed, folder / ROWS[1], signal.SIGKILL)
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    survived = load_state(folder / ROWS[1] / "checkpoints" / STATE)
    assert survived is not None
    lost = metrics(folder / ROWS[1])[-1]["update"] - survived["ledger"]["update"]
    assert not (folder / ROWS[1] / "result.json").exists()
    run_tiny(folder)
    return Broken(folder, process.returncode, stderr, Ledger(**state["ledger"]), lost)


def test_sigterm_is_one_line_and_status_143(broken: Broken):
    assert broken.status == 143
    assert broken.stderr.count("\n") == 1
    assert broken.stderr.startswith(
        f"stopped at update {broken.stopped.update} of 90; the same command goes on"
    )
    assert broken.stopped.epoch == 1
    assert 18 <= broken.stopped.position == broken.stopped.update < 60


@pytest.mark.parametrize("row", ROWS)
def test_an_interrupted_row_ends_with_the_weights_of_an_unbroken_one(
    broken: Broken, finished: Path, row: str
):
    assert same_weights(broken.folder / row / "checkpoints" / FINAL, finished / row / "checkpoints" / FINAL)
    assert (broken.folder / row / "test.hyp").read_text() == (finished / row / "test.hyp").read_text()
    assert 0 <= broken.lost < 7


@pytest.mark.parametrize("row", ROWS)
def test_an_interrupted_row_has_every_line_once(broken: Broken, finished: Path, row: str):
    timeless = (
        "kind",
        "update",
        "epoch",
        "loss",
        "bleu",
        "grad_norm",
        "src_tokens",
        "tgt_tokens",
        "learning_rate",
    )
    lines, expected = (
        [{name: line.get(name) for name in timeless} for line in metrics(folder / row)]
        for folder in (broken.folder, finished)
    )
    assert lines == expected
    updates = [line["update"] for line in lines if line["kind"] == "train"]
    assert updates == list(range(1, 91))


def test_resumed_results_equal_those_of_an_unbroken_run(broken: Broken, finished: Path):
    for row in ROWS:
        one, other = (
            json.loads((folder / row / "result.json").read_text()) for folder in (broken.folder, finished)
        )
        for name in (
            "updates",
            "epochs",
            "tokens_seen",
            "best_update",
            "valid_loss",
            "bleu",
            "chrf",
            "batch_hash",
        ):
            assert one[name] == other[name], name


def test_bytes_of_noise_are_no_state(tmp_path: Path):
    path = tmp_path / STATE
    path.write_bytes(random.Random(0).randbytes(500))
    with pytest.raises(ValueError, match="damaged trainer state"):
        load_state(path)
