"""Every model on torch's device "meta": nothing is created on another device, and no value is read back.

There are no values on that device, so an operation that reads one, or whose shape depends on one, raises an
error; so does one that mixes it with the CPU. On a GPU the first would make the host wait, the second fail.
"""

import inspect
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from compare.config.sections import RegularizationConfig, TrainConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.protocol import keep, select
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.step import compute_loss, train_step
from data.batches import make_batch
from tests.kits.contract import tiny
from tests.kits.texts import random_split

META = torch.device("meta")
BATCH = make_batch(random_split([(2, 1), (1, 2), (1, 1), (2, 2)]), np.arange(4))
CASES = [(name, {}, {}) for name in PRESETS]
CASES += [("transformer", {"positions": kind}, {}) for kind in ("alibi", "t5", "relative")]
CASES += [("luong-general", {"variational": True}, {})]
CASES += [
    (name, {}, {"consistency": pair}) for name in ("bahdanau", "transformer") for pair in ("r-drop", "simcut")
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("name", "changes", "regularization"), CASES)
def test_training_and_search_stay_on_the_device(name, changes, regularization, dtype, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it knows no device "meta"
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    settings = tiny(name).override(changes)
    model = build(settings.architecture, 99, 99).to(META, dtype)
    criterion = TranslationLoss(model, 0.1, RegularizationConfig(**regularization)).train()
    optimizer = build_optimizer(criterion, settings.optim)
    for group in optimizer.param_groups:
        group["fused"] = False  # torch has no such kernel for the device "meta"
    batch = BATCH.to(META)
    loss, norm = train_step(criterion, optimizer, TrainConfig(precision="fp32"), batch)
    assert {loss.nll.device, norm.device} == {META}
    model.eval()
    # Left: without lengths, an encoder asks the device for them, in search once per batch.
    takes_lengths = "src_lengths" in inspect.signature(model.encode).parameters
    encode = partial(model.encode, src_lengths=batch.src_lengths) if takes_lengths else model.encode
    with torch.inference_mode():
        assert compute_loss(criterion.eval(), batch).nll.device == META
        memory = encode(batch.src, batch.src_mask)
        state = model.init_state(memory, 2, 3)
        tokens, parents = torch.zeros(2, 4, 2, dtype=torch.long, device=META)
        logits, state = model.step(tokens, state, memory)
        assert logits.device == META
        state = select(state, parents)
        rows = torch.zeros(2, dtype=torch.long, device=META)
        memory, state = keep(memory, rows), keep(state, rows)
        model.step(tokens[:2], state, memory)
