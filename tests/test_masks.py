"""Source masks that people pass in: None, 0/1 of any type, and masks that a model would misread."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seq2seq
import seq2seq.model
import transformer
import transformer.masks
from compare.decoding.search import search
from tests.kits.contract import EXACT, SPECIAL, leaves, make, seeded_float64, sources, targets

_float64 = pytest.fixture(autouse=True)(seeded_float64)
NAMES = ["lstm-reversed", "bahdanau", "transformer", "decoder-only", "transformer-rnn", "rnn-transformer"]
CHECKS = [seq2seq.model, transformer.masks]
METHODS: list[Callable[[Any, Tensor, Tensor | None, Tensor], Any]] = [
    lambda model, src, mask, tgt: model(src, mask, tgt),
    lambda model, src, mask, tgt: model.features(src, mask, tgt).hidden,
    lambda model, src, mask, _: leaves(model.encode(src, mask)),
    lambda model, src, mask, tgt: list(model.attention(src, mask, tgt).values()),
]


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return make(request.param).eval()


@pytest.mark.parametrize("call", METHODS)
def test_masks_are_bool_or_zeros_and_ones_or_none_for_no_padding(model: nn.Module, call: Any):
    (src, mask), tgt = sources(), targets()
    expected = call(model, src, torch.ones_like(src, dtype=torch.bool), tgt)
    torch.testing.assert_close(call(model, src, None, tgt), expected, **EXACT)
    expected = call(model, src, mask, tgt)
    for dtype in (torch.int64, torch.bfloat16):
        torch.testing.assert_close(call(model, src, mask.to(dtype), tgt), expected, **EXACT)


FAULTS: list[Callable[[Tensor], Tensor]] = [
    lambda mask: mask.flip(1),
    lambda mask: mask & (torch.arange(mask.size(1)) != 1),
    lambda mask: mask & (torch.arange(len(mask)) != 2).unsqueeze(1),
    torch.logical_not,
    lambda mask: torch.zeros(mask.shape).masked_fill(~mask, float("-inf")),
    lambda mask: mask[:, None, None],
]


@pytest.mark.parametrize("call", METHODS)
def test_masks_that_a_model_would_misread_are_refused(model: nn.Module, call: Any):
    (src, mask), tgt = sources(), targets()
    for fault in FAULTS:
        with pytest.raises(ValueError, match=r"^src_mask must "):
            call(model, src, fault(mask), tgt)


def test_targets_of_other_sentences_are_refused(model: nn.Module):
    (src, mask), tgt = sources(), targets()
    for call in (model, model.attention):
        with pytest.raises(ValueError, match="tgt_in has 1 sentences, but src has 4"):
            call(src, mask, tgt[:1])


def test_a_batch_without_sentences_or_tokens_is_refused(model: nn.Module):
    (src, mask), tgt = sources(), targets()
    for empty in (src[:0], src[:, :0]):
        with pytest.raises(ValueError, match="src must have a sentence and a token"):
            model(empty, None, tgt[: len(empty)])
    with pytest.raises(ValueError, match="tgt_in must have a token"):
        model(src, mask, tgt[:, :0])


def test_search_checks_the_mask_once(model: nn.Module, monkeypatch: pytest.MonkeyPatch):
    calls = []
    for module in CHECKS:
        describe = module.has_checkable_values
        monkeypatch.setattr(
            module, "has_checkable_values", lambda mask, run=describe: calls.append(1) or run(mask)
        )
    src, mask = sources()
    search(model, src, mask, limits=torch.full((4,), 6), special=SPECIAL, beam_size=2)
    assert len(calls) == 1
