"""Files that can be parsed but say what no run wrote, sizes that no machine holds, and NaN."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from compare.decoding.search import SpecialIds, search
from compare.models import registry as meta_model
from compare.models.registry import build
from compare.results.trained_model import load_model
from seq2seq.config import Seq2SeqConfig
from tests.kits.cli import ROWS, Refusal

RUN = ROWS[0]
WEIGHTS = f"{RUN}/checkpoints/final.safetensors"


def change(path: Path, **changes: Any) -> None:
    """Rewrite some keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def command(name: str, tiny_toml: Path, copy: Path) -> list[str | Path]:
    """The arguments of a command; "resume" reads the trainer state of RUN again."""
    if name == "resume":
        (copy / RUN / "result.json").unlink(missing_ok=True)
    if name in ("run", "resume", "dry run"):
        dry = ["--dry-run"] if name == "dry run" else []
        return ["run", tiny_toml, "--out", copy, "-q", *dry]
    if name == "translate":
        return ["translate", copy / RUN]
    return [name, copy] if name == "table" else [name, copy, "-q"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state["progress"].update(update="7"), "update cannot be '7'"),
        (lambda state: state["progress"].update(best_loss=math.nan), "best_loss cannot be nan"),
        (lambda state: state["progress"].update(seconds=[1.0]), r"seconds cannot be \[1.0\]"),
        (lambda state: state.update(progress=[]), "argument after"),
        (lambda state: state.update(weights=[]), "has no attribute"),
        (lambda state: state.update(optimizer=None), "NoneType"),
        (lambda state: state["optimizer"]["state"][0].pop("exp_avg"), "other parts than AdamW's"),
        (lambda state: state["optimizer"]["state"][0].update(exp_avg=torch.ones(1)), "another shape"),
        (lambda state: state["optimizer"]["param_groups"][0].update(betas=None), "betas of the optimizer is"),
        (lambda state: state["running_metrics"].update(nll="x"), "nll cannot be 'x'"),
        (lambda state: state["running_metrics"].pop("norm"), "running metrics cannot be"),
        (lambda state: state["running_metrics"].update(began={}), "began cannot be {}"),
    ],
)
def test_a_state_with_a_value_of_another_type(
    tiny_toml: Path, copy: Path, refusal: Refusal, damage: Callable[[Any], object], message: str
):
    path = copy / RUN / "checkpoints" / "trainer.pt"
    state = torch.load(path, weights_only=True)
    damage(state)
    torch.save(state, path)
    said = refusal(*command("resume", tiny_toml, copy))
    assert said.startswith(f"{path}: the state of another model or version")
    assert re.search(message, said)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"kind": "valid", "update": 1, "loss": 1.0, "bleu": 1.0}, "a valid line without seconds"),
        (
            {"kind": "valid", "update": 1, "seconds": 1, "loss": 1.0, "bleu": [1]},
            "finite number, found [1]",
        ),
        (
            {"kind": "train", "update": 1, "src_tokens": 1.5, "tgt_tokens": 1},
            "whole number, found 1.5",
        ),
        (
            {"kind": "train", "update": None, "src_tokens": 1, "tgt_tokens": 1},
            "whole number, found None",
        ),
        ({"kind": "x", "update": 1}, "kind must be one of train, valid, average, ema, final, found 'x'"),
    ],
)
def test_a_line_of_metrics_with_wrong_fields(
    tiny_toml: Path, copy: Path, refusal: Refusal, line: dict[str, Any], message: str
):
    path = copy / RUN / "metrics.jsonl"
    path.write_text(json.dumps(line) + "\n" + path.read_text())
    for name in ("plot", "resume"):
        said = refusal(*command(name, tiny_toml, copy))
        assert said.startswith(f"{path}, line 1: ")
        assert message in said


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("speed.json", {"decode_s": "1"}, "Expected `float | null`, got `str` - at `$.decode_s`"),
        ("speed.json", {"timings": {"greedy": {"sentences": 1}}}, "at `$.timings.greedy`"),
        ("speed.json", {"timings": 1}, "at `$.timings`"),
        ("speed.json", None, "put the run's own speed.json back"),
        ("metrics.jsonl", None, "metrics.jsonl, line 1: not a JSON object of metrics"),
    ],
)
def test_check_says_what_is_damaged(
    copy: Path, capsys: pytest.CaptureFixture[str], name: str, changes: dict[str, Any] | None, message: str
):
    from compare.cli import main

    path = copy / RUN / name
    if changes is None:
        path.write_text("[" * 100_000 + "\n\n")
    else:
        change(path, **changes)
    assert main(["check", str(copy), "-q"]) == 1
    assert message in capsys.readouterr().out


def test_a_registry_nested_too_deeply(tiny_toml: Path, copy: Path, refusal: Refusal):
    (copy / "experiment.json").write_text('{"data_hash":' + "[" * 100_000)
    for name in ("dry run", "run", "table"):
        assert refusal(*command(name, tiny_toml, copy)).endswith("experiment.json: expected one JSON object")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (f"{RUN}/result.json", ["table", "translate", "dry run"]),
        (f"{RUN}/config.toml", ["dry run"]),
        (f"{RUN}/vocabulary.json", ["translate"]),
        (f"{RUN}/metrics.jsonl", ["plot"]),
        (f"{RUN}/test.hyp", ["report"]),
        (WEIGHTS, ["translate"]),
        (f"{RUN}/checkpoints/trainer.pt", ["resume"]),
        ("experiment.json", ["table"]),
        ("test.src", ["plot"]),
    ],
)
def test_pipes_and_devices_are_no_files(
    tiny_toml: Path, copy: Path, refusal: Refusal, kind: str, name: str, commands: list[str]
):
    (copy / name).unlink()
    if kind == "pipe":
        os.mkfifo(copy / name)
    else:
        (copy / name).symlink_to("/dev/zero")
    for each in commands:
        if each == "report":  # the page is made without the texts, and says why
            from compare.analysis.finished_experiment import load_finished

            with pytest.raises(ValueError, match="a pipe, a device or a socket, not a file"):
                load_finished(copy)
        else:
            assert "a pipe, a device or a socket, not a file" in refusal(*command(each, tiny_toml, copy))


@pytest.mark.parametrize("name", ["result.json", "config.toml"])
def test_a_file_larger_than_any_such_file(tiny_toml: Path, copy: Path, refusal: Refusal, name: str):
    with (copy / RUN / name).open("wb") as file:
        file.truncate(1 << 34)  # sparse
    assert "over 1,000,000 bytes" in refusal(*command("translate", tiny_toml, copy))


# --- sizes


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("hidden_size = 1000000000", "no machine can hold this model"),
        ("hidden_size = 1000000", "GiB for weights, gradients and optimizer, but this machine has"),
        ("num_layers = 1000000000", "num_layers must be at most 1,000, got 1,000,000,000"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_model_that_no_machine_holds(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, setting: str, message: str, dry: list[str]
):
    config = tmp_path / "huge.toml"
    config.write_text(tiny_toml.read_text().replace("hidden_size = 16", setting))
    said = refusal("run", config, "--out", tmp_path / "out", "-q", *dry)
    assert message in said
    assert not (tmp_path / "out").exists()
    if "GiB" in message:
        widths = "hidden_size, encoder_size, attention_size, embedding_size"
        assert f"lower {widths}, the number of layers or vocabulary.size" in said


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("decode.beam_size=1000000", "beam_size must be at most 1,000, found 1000000"),
        ("vocabulary.size=1000000000", "size must be at most 10,000,000, found 1000000000"),
        ("decode.max_ratio=1e300", "max_ratio must be at most 1,000"),
    ],
)
def test_settings_that_no_machine_holds(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, setting: str, message: str
):
    for dry in ([], ["--dry-run"]):
        assert message in refusal("run", tiny_toml, "--set", setting, "--out", tmp_path / "out", *dry)


def test_a_config_that_the_weights_do_not_fit_allocates_nothing(
    copy: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    config = copy / RUN / "config.toml"
    config.write_text(config.read_text().replace("hidden_size = 16", "hidden_size = 6000"))
    monkeypatch.setattr("compare.results.trained_model.build", None)
    monkeypatch.setattr(meta_model, "physical_memory_bytes", lambda: 1 << 60)
    assert "the weights belong to another size" in refusal("translate", copy / RUN)
    monkeypatch.setattr(meta_model, "physical_memory_bytes", lambda: 1 << 20)
    assert "GiB for weights, but this machine has 0.0 GiB" in refusal("translate", copy / RUN)


def test_a_beam_that_no_machine_holds(finished: Path):
    with pytest.raises(ValueError, match="beam_size must be from 1 to 1,000, found 1,000,000"):
        load_model(finished / RUN).translate(["red dog"], beam_size=10**6)


# --- NaN and changed weights


def test_weights_other_than_those_recorded(copy: Path, refusal: Refusal):
    path = copy / WEIGHTS
    weights = safetensors.torch.load_file(path)
    name = next(iter(weights))
    weights[name] = weights[name] + 1
    safetensors.torch.save_file(weights, path)
    assert f"{path} are not the weights of this run's result (sha256 " in refusal("translate", copy / RUN)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "holds NaN or infinity"),
        (math.inf, "holds NaN or infinity"),
        (1j, "is of type torch.complex"),
    ],
)
def test_weights_that_are_no_numbers(copy: Path, refusal: Refusal, value: complex, message: str):
    change(copy / RUN / "result.json", files={})
    weights = safetensors.torch.load_file(copy / WEIGHTS)
    name = sorted(weights)[0]
    weights[name] = weights[name] * value
    try:
        safetensors.torch.save_file(weights, copy / WEIGHTS)
    except KeyError as error:
        pytest.skip(f"safetensors {safetensors.__version__} writes no {error}")
    said = refusal("translate", copy / RUN)
    assert said.startswith(f"{copy / WEIGHTS}: {name} ")
    assert message in said


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers(beam: int, value: float):
    """One sentence of four has them, from its third step on."""
    model = build(Seq2SeqConfig(embedding_size=8, hidden_size=8, tie="none"), 9, 9).eval()
    step, steps = model.step, []

    def damaged_step(tokens: torch.Tensor, state: Any, memory: Any) -> tuple[torch.Tensor, Any]:
        logits, state = step(tokens, state, memory)
        steps.append(1)
        logits[:, :, 2] = -30.0  # so that no hypothesis ends before
        if len(steps) > 2:
            logits[0, :, 5] = value
        return logits, state

    model.step = damaged_step
    src = torch.randint(4, 9, (4, 5))
    with pytest.raises(ValueError, match="the model's scores are NaN"):
        search(
            model,
            src,
            torch.ones_like(src, dtype=torch.bool),
            limits=torch.tensor([6, 6, 3, 4]),
            special=SpecialIds(pad=0, bos=1, eos=2),
            beam_size=beam,
        )
