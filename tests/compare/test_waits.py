"""An update never makes the host wait for its GPU: nothing is read back, and no shape depends on values."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import compare.models.ladder
import seq2seq.fast
import seq2seq.model
import transformer.masks
from compare.config.sections import RegularizationConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.optim import build_optimizer
from compare.training.checkpoints import RunningMetrics
from compare.training.loss import TranslationLoss
from compare.training.step import compute_loss, train_step
from data.batches import make_batch
from seq2seq.fast import Padding
from tests.kits.contract import tiny
from tests.kits.loader import random_split

BATCH = make_batch(random_split([(3, 4), (1, 2), (5, 1), (2, 2)]), np.arange(4))
CASES = [(name, "none", precision) for name in PRESETS for precision in ("fp32", "bf16")]
CASES += [(name, pair, "bf16") for name in ("bahdanau", "transformer") for pair in ("r-drop", "simcut")]


VALUE_READ = {
    "aten::_local_scalar_dense",  # item, int, float, bool, if, tolist of a scalar
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::multinomial",
    "aten::bincount",
}
"""Operations that read values of tensors on the host, or whose output has a shape that depends on values."""
NO_LAUNCH = {"aten::detach", "aten::alias", "aten::empty", "aten::empty_like", "aten::empty_strided"}
"""Operations besides views that start no work."""


class CountOperations(TorchDispatchMode):
    """Counts waits by name and launches of all operations run inside, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.launches = 0
        self.host: list[Tensor] = []
        """Tensors that stay on the host, whose values may be read."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count an operation and run it."""
        name = func._schema.name
        if name in VALUE_READ or _indexes_by_mask(name, args) or _repeats_by_tensor(func, kwargs):
            self.waits[name] += not self._is_on_host(args[0])
        if not func.is_view and name not in NO_LAUNCH:
            self.launches += 1
        return func(*args, **(kwargs or {}))

    def _is_on_host(self, tensor: Tensor) -> bool:
        memory = tensor.untyped_storage().data_ptr()
        return any(known.untyped_storage().data_ptr() == memory for known in self.host)


def _indexes_by_mask(name: str, args: Sequence[Any]) -> bool:
    if not name.startswith("aten::index") or len(args) < 2 or not isinstance(args[1], list | tuple):
        return False
    return any(isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1])


def _repeats_by_tensor(func: Any, kwargs: Mapping[str, Any] | None) -> bool:
    return str(func) == "aten.repeat_interleave.Tensor" and (kwargs or {}).get("output_size") is None


@contextmanager
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, host: Sequence[Tensor]) -> Iterator[CountOperations]:
    """Count as on a GPU: the checks that only a CPU does are left out, and work on the host is not counted.

    Args:
        monkeypatch: for this block.
        host: the tensors that the encoder may read on the host: source lengths.
    """
    with monkeypatch.context() as patch:
        for module in (seq2seq.model, transformer.masks):
            patch.setattr(module, "has_checkable_values", lambda mask: False)
        plan = seq2seq.fast.plan_packing

        def plan_on_the_host(lengths: Tensor, size: int, device: torch.device) -> Any:
            assert any(lengths is known for known in host), "lengths were read from the mask"
            with _disable_current_modes():
                packing = plan(lengths, size, device)
            counted.host.append(packing.batch_sizes)
            return packing

        patch.setattr(seq2seq.fast, "plan_packing", plan_on_the_host)
        patch.setattr(compare.models.ladder, "plan_layout", lambda lengths, size: Padding(lengths))
        with CountOperations() as counted:
            yield counted


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
