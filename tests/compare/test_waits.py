"""An update never makes the host wait for its GPU: nothing is read back, and no shape depends on values."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from compare.config.sections import RegularizationConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.optim import build_optimizer
from compare.training.checkpoints import RunningMetrics
from compare.training.loss import TranslationLoss
from compare.training.step import compute_loss, train_step
from data.batches import make_batch
from tests.kits.contract import tiny
from tests.kits.loader import random_split
from tests.kits.waits import CountOperations, as_on_a_gpu

BATCH = make_batch(random_split([(3, 4), (1, 2), (5, 1), (2, 2)]), np.arange(4))
CASES = [(name, "none", precision) for name in PRESETS for precision in ("fp32", "bf16")]
CASES += [(name, pair, "bf16") for name in ("bahdanau", "transformer") for pair in ("r-drop", "simcut")]


@pytest.mark.parametrize(("name", "consistency", "precision"), CASES)
def test_an_update_and_a_validation_wait_for_nothing(
    name: str, consistency: str, precision: str, monkeypatch: pytest.MonkeyPatch
):
    settings, regularization = tiny(name), RegularizationConfig(consistency=consistency)
    torch.manual_seed(1)
    model = build(settings.architecture, 99, 99)
    criterion = TranslationLoss(model, 0.1, regularization).train()
    optimizer = build_optimizer(criterion.parameters(), settings.optim)
    metrics = RunningMetrics(torch.device("cpu"))
    with as_on_a_gpu(monkeypatch, [BATCH.src_lengths]) as counted:
        for _ in range(2):
            loss, norm = train_step(criterion, optimizer, BATCH, precision=precision, clip_norm=1.0)
            metrics.add(loss.nll, norm, BATCH)
        with torch.no_grad():
            compute_loss(TranslationLoss(model, 0.0).eval(), BATCH)
    assert counted.waits.total() == 0
    assert counted.launches > 100


X = torch.arange(6.0)


@pytest.mark.parametrize(
    "read",
    [
        lambda: float(X.sum()),
        lambda: X[X > 2],
        lambda: bool((X > 2).any()),
        lambda: X.repeat_interleave(torch.ones(6, dtype=torch.long)),
    ],
)
def test_what_would_wait_is_counted(read: Callable[[], object]):
    with CountOperations() as counted:
        read()
    assert counted.waits.total() >= 1
