"""An update never makes the host wait for its GPU: nothing is read back, and no shape depends on values."""

import numpy as np
import pytest
import torch

from compare.config.sections import RegularizationConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.optim import build_optimizer
from compare.training.checkpoints import RunningMetrics
from compare.training.cross_entropy import chunk_rows
from compare.training.loss import TranslationLoss
from compare.training.step import compute_loss, train_step
from data.batches import make_batch
from tests.kits.contract import tiny
from tests.kits.loader import random_split
from tests.kits.waits import CountOperations, as_on_a_gpu

BATCH = make_batch(random_split([(3, 4), (1, 2), (5, 1), (2, 2)]), np.arange(4))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", PRESETS)
def test_an_update_waits_for_nothing(name: str, precision: str, monkeypatch: pytest.MonkeyPatch):
    settings = tiny(name)
    torch.manual_seed(1)
    criterion = TranslationLoss(build(settings.architecture, 99, 99), 0.1).train()
    optimizer = build_optimizer(criterion.parameters(), settings.optim)
    metrics = RunningMetrics(torch.device("cpu"))
    with as_on_a_gpu(monkeypatch, [BATCH.src_lengths]) as counted:
        for _ in range(2):
            loss, norm = train_step(criterion, optimizer, BATCH, precision=precision, clip_norm=1.0)
            metrics.add(loss.nll, norm, BATCH)
    assert counted.waits.total() == 0
    assert counted.launches > 100


@pytest.mark.parametrize("consistency", ["r-drop", "simcut"])
@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_neither_does_one_of_two_passes(name: str, consistency: str, monkeypatch: pytest.MonkeyPatch):
    settings = tiny(name)
    regularization = RegularizationConfig(consistency=consistency)
    criterion = TranslationLoss(build(settings.architecture, 99, 99), 0.1, regularization).train()
    optimizer = build_optimizer(criterion.parameters(), settings.optim)
    with as_on_a_gpu(monkeypatch, [BATCH.src_lengths]) as counted:
        train_step(criterion, optimizer, BATCH, precision="bf16", clip_norm=1.0)
    assert counted.waits.total() == 0


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_neither_does_the_loss_of_a_batch_of_validation(name: str, monkeypatch: pytest.MonkeyPatch):
    criterion = TranslationLoss(build(tiny(name).architecture, 99, 99), 0.0).eval()
    with torch.inference_mode(), as_on_a_gpu(monkeypatch, [BATCH.src_lengths]) as counted:
        compute_loss(criterion, BATCH)
    assert counted.waits.total() == 0


def test_what_would_wait_is_counted():
    x = torch.arange(6.0)
    reads = [
        lambda: float(x.sum()),
        lambda: x.nonzero(),
        lambda: x[x > 2],
        lambda: bool((x > 2).any()),
        lambda: x.masked_select(x > 2),
        lambda: x.repeat_interleave(torch.ones(6, dtype=torch.long)),
        lambda: torch.equal(x, x),
    ]
    for read in reads:
        with CountOperations() as counted:
            read()
        assert counted.waits.total() >= 1
    with CountOperations() as counted:
        x.nonzero_static(size=5)
        x[torch.tensor([1, 2])].where(x[:2] > 0, 0.0)
    assert counted.waits.total() == 0


def test_lengths_from_the_mask_would_be_noticed(monkeypatch: pytest.MonkeyPatch):
    criterion = TranslationLoss(build(tiny("lstm").architecture, 99, 99), 0.0)
    parts = BATCH.src, BATCH.src_mask, BATCH.tgt_in, BATCH.tgt_out, BATCH.tgt_mask
    with as_on_a_gpu(monkeypatch, [BATCH.src_lengths]), pytest.raises(AssertionError, match="from the mask"):
        criterion(*parts)


@pytest.mark.parametrize(
    ("device", "vocabulary", "rows"),
    [("cpu", 32_000, 131), ("cpu", 1 << 23, 1), ("meta", 8_000, 4_096), ("meta", 50_000, 2_684)],
)
def test_chunks_of_logits_fit_the_device(device: str, vocabulary: int, rows: int):
    """A CPU's cache, or 4,096 rows and 512 MB: 10,000 target tokens are 3 chunks, where they were 77."""
    weight = torch.empty(vocabulary, 2, device=device if vocabulary < 1 << 23 else "cpu")
    assert chunk_rows(weight) == rows
    assert device == "cpu" or rows * vocabulary * 4 <= 512 << 20
