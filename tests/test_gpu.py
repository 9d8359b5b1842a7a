"""Behaviour on a GPU: ``make test ARGS="-m gpu"``. Without one these tests are skipped."""

import json
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seq2seq.fast
import seq2seq.model
from compare.cli import main
from compare.config.sections import TrainConfig
from compare.decoding.search import LOOK_EVERY, NO_PENALTY, Beams, search
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.protocol import select
from compare.system.device import device_name, set_numerics
from compare.system.processes import Interrupted
from compare.training.checkpoints import CHECKPOINTS, FINAL, RunningMetrics
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.step import compute_loss, train_step
from data.batches import Batch, BatchStream, make_batch
from seq2seq import AttentionConfig, Seq2SeqConfig
from tests.kits import contract
from tests.kits.common import Refusal
from tests.kits.contract import SPECIAL, make, sharpen, sources, tiny
from tests.kits.texts import many
from tests.kits.training import bleus, make_stream, same_weights, trainer
from transformer.config import TransformerConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # torch reads it at the first product alone
DEVICE = torch.device("cuda")
SIZE = 99
"""Size of the vocabularies of ``many``."""
BATCH = make_batch(many(), np.arange(300))  # more than 3,072 tokens: embeddings have another kernel for these
PRECISIONS = ["fp32", "bf16"]
TWO_LAYERS = {
    "lstm": Seq2SeqConfig(embedding_size=8, hidden_size=8, num_layers=2, dropout=0.3),
    "gru-residual": Seq2SeqConfig(
        attention=AttentionConfig(), embedding_size=8, hidden_size=8, num_layers=3, cell="gru", dropout=0.3
    ),
    "transformer": TransformerConfig(
        d_model=16, num_heads=2, encoder_layers=2, decoder_layers=2, ffn_size=16, attention_dropout=0.1
    ),
}
stream = pytest.fixture(scope="module")(make_stream)


@contextmanager
def no_wait_for_the_gpu() -> Iterator[None]:
    """Raise a RuntimeError where the host waits for a real GPU, in the operations that torch watches."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(autouse=True)
def numerics(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute as runs do, and leave no setting behind."""
    before = torch.backends.cudnn.allow_tf32
    set_numerics(DEVICE)
    yield
    set_numerics(DEVICE)
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def deterministic() -> None:
    set_numerics(DEVICE, deterministic=True)


def criterion_of(name: str, seed: int = 1) -> TranslationLoss:
    """Build the loss of a preset at tiny size, in training mode."""
    torch.manual_seed(seed)
    model = build(tiny(name).architecture, SIZE, SIZE)
    return TranslationLoss(model, 0.1).to(DEVICE).train()


def update(
    criterion: TranslationLoss, optimizer: torch.optim.Optimizer, batch: Batch, precision: str
) -> tuple[Tensor, Tensor]:
    loss, norm = train_step(criterion, optimizer, TrainConfig(precision=precision), batch)
    return loss.nll, norm


# --- precision of recurrent layers


@pytest.mark.parametrize("name", ["lstm", "bahdanau", "gru-context", "rnn-transformer"])
def test_recurrent_layers_of_bf16_run_in_bf16(name: str, monkeypatch: pytest.MonkeyPatch):
    """Not in float16, to which torch's autocast casts them; before cuDNN 9.13 in fp32."""
    seen = set()

    def spied(run: Any) -> Any:
        def spy(entries: Tensor, *arguments: Any) -> Any:
            outputs, flat = (
                run(entries, *arguments),
                next(part for part in arguments if isinstance(part, list)),
            )
            seen.update(part.dtype for part in (entries, *flat, *outputs))
            seen.add(outputs[0].grad_fn.name())
            return outputs

        return spy

    for name_of_kernel in ("lstm", "gru", "rnn_tanh"):
        monkeypatch.setattr(torch, name_of_kernel, spied(getattr(torch, name_of_kernel)))
    criterion = criterion_of(name)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        compute_loss(criterion, BATCH.to(DEVICE)).minimised.backward()
    used = torch.bfloat16 if seq2seq.fast.has_bf16_layers() else torch.float32
    assert seen == {used, "CudnnRnnBackward0"}


# --- updates


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", PRESETS)
def test_updates_are_finite_and_wait_for_nothing(name: str, precision: str):
    criterion, metrics = criterion_of(name), RunningMetrics(DEVICE)
    optimizer = build_optimizer(criterion, tiny(name).optim)
    before = [parameter.detach().clone() for parameter in criterion.parameters()]
    update(criterion, optimizer, BATCH.to(DEVICE), precision)  # libraries start here
    with no_wait_for_the_gpu():
        for _ in range(2):
            nll, norm = update(criterion, optimizer, BATCH.to(DEVICE), precision)
            metrics.add(nll, norm, BATCH)
    line = metrics.compute_and_reset({"data": 0.0, "train": 1.0})
    assert 0 < line["loss"] < 10
    assert np.isfinite(line["grad_norm"])
    changed = [not torch.equal(*pair) for pair in zip(before, criterion.parameters(), strict=True)]
    assert all(parameter.isfinite().all() for parameter in criterion.parameters())
    assert np.mean(changed) > 0.5  # biases that a softmax ignores stay


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", [name for name in PRESETS if "reinforce" not in name])  # that one samples
def test_loss_and_gradients_are_those_of_the_cpu(
    name: str, dtype: torch.dtype, error: float, monkeypatch: pytest.MonkeyPatch
):
    """With TensorFloat-32 or a layer in half precision the error would be above 1e-4."""
    monkeypatch.setitem(contract.TINY, "dropout", 0.0)
    monkeypatch.setitem(contract.TINY, "attention_dropout", 0.0)
    criterion = criterion_of(name).to(dtype)
    losses = []
    for device in (torch.device("cpu"), DEVICE):
        criterion.to(device).zero_grad(set_to_none=True)
        loss = compute_loss(criterion, BATCH.to(device))
        (loss.minimised / loss.tokens).backward()
        gradients = [p.grad.flatten() for p in criterion.parameters() if p.grad is not None]
        losses.append((loss.minimised.detach().cpu(), torch.cat(gradients).cpu()))
    (loss_cpu, cpu), (loss_gpu, gpu) = losses
    torch.testing.assert_close(loss_gpu, loss_cpu, rtol=error, atol=0)
    assert (gpu - cpu).norm() < error * cpu.norm()


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", PRESETS)
def test_deterministic_updates_are_equal_to_the_bit(name: str, precision: str):
    weights = []
    for _ in range(2):
        criterion = criterion_of(name)
        optimizer = build_optimizer(criterion, tiny(name).optim)
        torch.manual_seed(2)
        for _ in range(3):
            update(criterion, optimizer, BATCH.to(DEVICE), precision)
        weights.append([parameter.detach().clone() for parameter in criterion.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*weights, strict=True))


# --- runs


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", TWO_LAYERS)
@pytest.mark.parametrize("at", [3, 8])
def test_a_resumed_run_equals_an_uninterrupted_one(
    name: str, precision: str, at: int, stream: BatchStream, tmp_path: Path
):
    """Dropout between layers included, whose state cuDNN would keep to itself."""

    def interrupt(line: dict[str, Any]) -> None:
        if line["kind"] == "train" and line["update"] == at:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = {"architecture": TWO_LAYERS[name], "device": DEVICE, "precision": precision}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    trainer(stream, whole, bleus(1, 2, 3, 4, 5), **settings).run()
    with pytest.raises(Interrupted, match=f"update {at} of 10"):
        trainer(stream, halves, bleus(1, 2, 3, 4, 5), interrupt, **settings).run()
    torch.manual_seed(99)  # the saved state must replace this
    remaining = bleus(2, 3, 4, 5) if at == 3 else bleus(5)
    trainer(stream, halves, remaining, **settings).run()
    assert same_weights(whole / CHECKPOINTS / FINAL, halves / CHECKPOINTS / FINAL)


def test_an_experiment_runs_and_its_device_is_decided(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    command = ["run", str(tiny_toml), "--out", str(tmp_path / "run"), "--quiet"]
    for setting in ("train.max_updates=20", "train.valid_every=10", "train.precision=bf16"):
        command += ["--set", setting]
    assert main([*command, "--set", "train.device=auto"]) == 0
    for name in ("luong-seed1", "transformer-seed1"):
        config = (tmp_path / "run" / name / "config.toml").read_text()
        assert 'device = "cuda"' in config
        assert "batch_tokens = 65536" in config
        result = json.loads((tmp_path / "run" / name / "result.json").read_text())
        assert result["device"] == device_name(DEVICE)
        assert result["reproducible"] == "up to rounding, not bit by bit"
        assert result["peak_memory_bytes"] > 0
        assert ("recurrent_precision" in result) == (
            name.startswith("luong") and not seq2seq.fast.has_bf16_layers()
        )
    message = refusal(*command, "--set", "train.device=cpu")
    assert 'device = "cuda" there, device = "cpu" here' in message
    assert main(["check", str(tmp_path / "run"), "--decode", "4"]) == 0


# --- search


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", PRESETS)
def test_a_gpu_translates_as_the_cpu(name: str, beam: int):
    """In float64, where no two scores are so near that the order of sums decides."""
    model = make(name).double().eval()
    sharpen(model)
    src, mask = sources()
    limits, searched = torch.full((len(src),), 8), []
    for device in (torch.device("cpu"), DEVICE):
        model.to(device)
        arguments = {"limits": limits, "special": SPECIAL, "beam_size": beam}
        searched.append(search(model, src.to(device), mask.to(device), **arguments))
    on_cpu, on_gpu = ([hypothesis.tokens for hypothesis in hypotheses] for hypotheses in searched)
    assert on_cpu == on_gpu


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["lstm", "bahdanau", "luong-general", "transformer", "decoder-only"])
def test_steps_of_a_search_wait_for_nothing(name: str, beam: int):
    """But for the look at the finished sentences, every eighth step; some sentences reach their limit."""
    model = make(name).to(DEVICE).eval()
    src, mask = (part.to(DEVICE) for part in sources())
    with torch.inference_mode():
        memory = model.encode(src, mask)
        limits = torch.tensor([3, 5, 40, 40])
        beams = Beams(limits, beam, SPECIAL, [NO_PENALTY], 1, DEVICE)
        state = model.init_state(memory, beam, 41)
        tokens = torch.full((len(src), beam), SPECIAL.bos, device=DEVICE)
        with no_wait_for_the_gpu():
            for _ in range(LOOK_EVERY - 1):
                logits, state = model.step(tokens, state, memory)
                tokens, parents = beams.advance(logits)
                assert beams.compact() is None
                state = select(state, parents)
