"""R-Drop and SimCut: values and gradients of the plain formulas, and training that resumes bit for bit."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import compare.training.consistency
import compare.training.loss
from compare.config.sections import RegularizationConfig
from compare.models.registry import build
from compare.training.consistency import (
    ConsistencyLoss,
    PairWeights,
    consistent_cross_entropy,
    cut_embeddings,
    cut_tokens,
    may_cut_source,
    may_cut_target,
    training_loss,
)
from compare.training.loss import TranslationLoss, linear_cross_entropy
from compare.training.serialization import FINAL, model_weights
from data.batches import BatchStream
from tests.kits.contract import V as VOCABULARY
from tests.kits.contract import make, sources, targets, tiny
from tests.kits.loss import ROWS, SIZE, TOKENS, TinyModel, batch, close
from tests.kits.training import SMALL, bleus, make_stream, metrics, same_weights, trainer
from transformer.config import TransformerConfig

stream = pytest.fixture(scope="module")(make_stream)
R_DROP = RegularizationConfig(consistency="r-drop", consistency_weight=1.5)
SIMCUT = RegularizationConfig(consistency="simcut", consistency_weight=0.7, cut=0.4)
METHODS = pytest.mark.parametrize("settings", [R_DROP, SIMCUT], ids=lambda settings: settings.consistency)
WEIGHTS = [PairWeights(0.5, 1.3, 1.3), PairWeights(0.0, 3.0, 0.0), PairWeights(0.3, 0.2, 0.7)]


def pair(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Hidden states of two passes (N, D) each, weight (V, D) and bias (V,)."""
    generator = torch.Generator().manual_seed(5)
    shapes = ((ROWS, SIZE), (ROWS, SIZE), (TOKENS, SIZE), (TOKENS,))
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [part.to(dtype).requires_grad_() for part in drawn]


TARGETS = torch.tensor([0, 10, 3, 3, 7, 1, 2])


def plain(first: Tensor, second: Tensor, targets: Tensor, smoothing: float, weights: PairWeights) -> Tensor:
    """The loss of all logits (N, V) at once, by torch's own functions."""
    p, q = first.log_softmax(1), second.log_softmax(1)
    losses = [
        functional.cross_entropy(each, targets, label_smoothing=smoothing, reduction="sum")
        for each in (first, second)
    ]
    forward = functional.kl_div(
        q, p, log_target=True, reduction="sum"
    )  # torch's first argument is the second
    backward = functional.kl_div(p, q, log_target=True, reduction="sum")
    of_references = (1 - weights.ce_q) * losses[0] + weights.ce_q * losses[1]
    return of_references + weights.kl_pq * forward + weights.kl_qp * backward


@pytest.mark.parametrize("chunk", [1, 6 * TOKENS, 1 << 22])  # 1, 3 and all rows at once
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_value_and_gradients_are_those_of_the_plain_formula(
    chunk: int, smoothing: float, weights: PairWeights, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", chunk)
    first, second, weight, bias = parts = pair()
    found, nll = consistent_cross_entropy(*parts, TARGETS, smoothing, weights)
    logits = [hidden @ weight.t() + bias for hidden in (first, second)]
    expected = plain(*logits, TARGETS, smoothing, weights)
    close(found, expected)
    close(nll, functional.cross_entropy(logits[0], TARGETS, reduction="none").detach())
    for one, other in zip(
        torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts), strict=True
    ):
        close(one, other)


def test_gradcheck(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", 4 * TOKENS)
    weights = WEIGHTS[2]
    assert torch.autograd.gradcheck(
        lambda *parts: consistent_cross_entropy(*parts, TARGETS, 0.3, weights)[0], pair()
    )


def test_a_divergence_by_hand():
    """KL((1/2, 1/2) || (1/4, 3/4)) = ln(2) / 2 + ln(2/3) / 2, and the other way ln(1/2) / 4 + ln(3/2) 3/4."""
    weight, bias, first, second = (
        torch.tensor(values, dtype=torch.float64)
        for values in ([[0.0], [1.0]], [0.0, 0.0], [[0.0]], [[math.log(3)]])
    )
    to_q, to_p = math.log(2) / 2 + math.log(2 / 3) / 2, math.log(1 / 2) / 4 + math.log(3 / 2) * 3 / 4
    for weights, divergence in ((PairWeights(0, 1, 0), to_q), (PairWeights(0, 0, 1), to_p)):
        loss, _ = consistent_cross_entropy(first, second, weight, bias, torch.tensor([0]), 0.0, weights)
        assert loss.item() == pytest.approx(math.log(2) + divergence, rel=1e-14)


def test_r_drop_is_symmetric():
    first, second, *layer = pair()
    weights = PairWeights(0.5, 0.8, 0.8)
    loss, _ = consistent_cross_entropy(first, second, *layer, TARGETS, 0.1, weights)
    swapped, _ = consistent_cross_entropy(second, first, *layer, TARGETS, 0.1, weights)
    close(loss, swapped)
    for part in (first, second, *layer):
        close(
            torch.autograd.grad(loss, part, retain_graph=True)[0],
            torch.autograd.grad(swapped, part, retain_graph=True)[0],
        )


def test_equal_passes_cost_their_cross_entropy():
    first, _, weight, bias = pair()
    for weights in WEIGHTS:
        loss, nll = consistent_cross_entropy(first, first, weight, bias, TARGETS, 0.1, weights)
        expected, expected_nll = linear_cross_entropy(first, weight, bias, TARGETS, 0.1)
        close(loss, expected)
        close(nll, expected_nll)
        parts = (first, weight, bias)
        for one, other in zip(
            torch.autograd.grad(loss, parts), torch.autograd.grad(expected, parts), strict=True
        ):
            close(one, other)


def test_no_logits_for_the_whole_batch_ever_exist(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", 4 * TOKENS)
    seen: list[int] = []
    losses = compare.training.loss.compute_losses

    def spy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        seen.append(logits.numel())
        return losses(logits, targets, smoothing)

    monkeypatch.setattr(compare.training.consistency, "compute_losses", spy)
    consistent_cross_entropy(*pair(), TARGETS, 0.1, WEIGHTS[0])
    assert seen == [2 * TOKENS] * 6 + [TOKENS] * 2  # of both passes, of 7 positions


def test_no_tokens_cost_nothing():
    first, second, weight, bias = pair()
    loss, nll = consistent_cross_entropy(first[:0], second[:0], weight, bias, TARGETS[:0], 0.1, WEIGHTS[0])
    assert (loss.item(), nll.numel()) == (0.0, 0)
    assert not torch.autograd.grad(loss, weight)[0].any()


def test_bf16_autocast_is_close_to_fp32():
    parts = pair(torch.float32)
    loss, _ = consistent_cross_entropy(*parts, TARGETS, 0.1, WEIGHTS[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow, nll = consistent_cross_entropy(*parts, TARGETS, 0.1, WEIGHTS[0])
    assert narrow.dtype == nll.dtype == torch.float32
    torch.testing.assert_close(narrow, loss, rtol=2e-2, atol=0)
    for one, other in zip(torch.autograd.grad(narrow, parts), torch.autograd.grad(loss, parts), strict=True):
        assert one.dtype == torch.float32
        assert 0 < (one - other).norm() / other.norm() < 0.03


# --- whole models


def example() -> tuple[Tensor, ...]:
    """A batch with padding on both sides."""
    (src, src_mask), ids = sources(), targets(7)
    tgt_mask = torch.arange(6) < torch.tensor([[6], [4], [1], [5]])
    return src, src_mask, ids[:, :-1], ids[:, 1:], tgt_mask


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros(()) if part is None else part for part in found]


def plain_loss(model: Any, settings: RegularizationConfig, parts: tuple[Tensor, ...]) -> Tensor:
    """The loss of a model by all its logits, with the draws of torch's generator in the same order."""
    src, src_mask, tgt_in, tgt_out, tgt_mask = parts
    first = model(src, src_mask, tgt_in)
    if settings.consistency == "simcut":
        src = cut_tokens(src, may_cut_source(src_mask), settings.cut or 0.0)
        tgt_in = cut_tokens(tgt_in, may_cut_target(tgt_in), settings.cut or 0.0)
        with cut_embeddings(model):
            second = model(src, src_mask, tgt_in)
    else:
        second = model(src, src_mask, tgt_in)
    alpha = settings.consistency_weight or 0.0
    weights = PairWeights(0.0, alpha, 0.0) if settings.cut else PairWeights(0.5, alpha / 2, alpha / 2)
    return plain(first[tgt_mask], second[tgt_mask], tgt_out[tgt_mask], 0.1, weights)


@METHODS
@pytest.mark.parametrize(
    "name", ["lstm", "bahdanau", "luong-general", "transformer", "decoder-only", "lstm-lm", "transformer-lm"]
)
def test_every_family_is_trained_by_the_plain_formula(
    name: str, settings: RegularizationConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", 6 * VOCABULARY)
    model, parts = make(name).double().train(), example()
    torch.manual_seed(7)
    loss = ConsistencyLoss(model, 0.1, settings)(*parts)
    torch.manual_seed(7)
    expected = plain_loss(model, settings, parts)
    close(loss.minimised, expected)
    assert loss.tokens == 16
    for found, reference in zip(gradients(model, loss.minimised), gradients(model, expected), strict=True):
        close(found, reference)
    alone = TranslationLoss(model, 0.1)(*parts)  # other dropout
    assert abs(loss.minimised.item() - alone.minimised.item()) > 1e-3


def test_r_drop_without_dropout_is_the_cross_entropy():
    model, parts = TinyModel(), batch()
    for settings in (R_DROP, replace(R_DROP, consistency_weight=0.0)):
        loss, expected = ConsistencyLoss(model, 0.1, settings)(*parts), TranslationLoss(model, 0.1)(*parts)
        close(loss.minimised, expected.minimised)
        close(loss.nll, expected.nll)
        for one, other in zip(
            gradients(model, loss.minimised), gradients(model, expected.minimised), strict=True
        ):
            close(one, other)


def test_without_weight_simcut_is_the_cross_entropy():
    model, parts = make("transformer").double(), example()
    torch.manual_seed(7)
    loss = ConsistencyLoss(model, 0.1, replace(SIMCUT, consistency_weight=0.0))(*parts)
    torch.manual_seed(7)
    expected = TranslationLoss(model, 0.1)(*parts)
    close(loss.minimised, expected.minimised)
    assert torch.equal(loss.nll, expected.nll)


@METHODS
def test_padding_takes_no_part(settings: RegularizationConfig):
    model = TinyModel()
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    criterion = ConsistencyLoss(model, 0.1, settings)
    garbage = torch.full_like(tgt_in, 9)
    losses = []
    for ids in ((tgt_in, tgt_out), (tgt_in.where(tgt_mask, garbage), tgt_out.where(tgt_mask, garbage))):
        torch.manual_seed(1)
        losses.append(criterion(src, src_mask, *ids, tgt_mask))
    assert torch.equal(losses[0].minimised, losses[1].minimised)
    assert losses[0].tokens == int(tgt_mask.sum())


@METHODS
def test_outside_training_the_loss_is_the_cross_entropy_bit_for_bit(settings: RegularizationConfig):
    model, parts = make("transformer"), example()
    loss = ConsistencyLoss(model, 0.1, settings).eval()(*parts)
    expected = TranslationLoss(model, 0.1).eval()(*parts)
    assert torch.equal(loss.minimised, expected.minimised)
    assert torch.equal(loss.nll, expected.nll)


def test_none_is_the_loss_of_before():
    criterion = training_loss(make("transformer"), 0.1, RegularizationConfig())
    assert type(criterion) is TranslationLoss
    assert criterion.label_smoothing == 0.1


def test_sampled_attention_is_refused():
    criterion = training_loss(build(tiny("hard-reinforce").architecture, 13, 13), 0.1, R_DROP)
    with pytest.raises(ValueError, match="cannot train by REINFORCE"):
        criterion(*example())


# --- training


TRAINED = {
    "luong": SMALL,
    "transformer": TransformerConfig(
        d_model=8, num_heads=2, encoder_layers=1, decoder_layers=1, ffn_size=8, attention_dropout=0.1
    ),
}


class Stop(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(("family", "settings"), [("luong", R_DROP), ("transformer", SIMCUT)])
def test_a_break_at_any_moment_changes_nothing(
    stream: BatchStream, tmp_path: Path, family: str, settings: RegularizationConfig
):
    deaths: set[tuple[str, int]] = set()

    def die(line: dict[str, Any]) -> None:
        if (moment := (line["kind"], line["update"])) not in deaths and line["update"] % 2:
            deaths.add(moment)
            raise Stop

    options: dict[str, Any] = {"architecture": TRAINED[family], "regularization": settings}
    options |= {"max_updates": 7, "valid_every": 5, "checkpoint_every": 2, "accumulate": 2}
    unbroken = trainer(stream, tmp_path / "b", bleus(1), **options)
    unbroken.run()
    for _ in range(40):
        try:
            trainer(stream, tmp_path / "a", bleus(1), die, **options).run()
        except Stop:
            continue
        break
    assert len(deaths) >= 6
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))
    lines = [[(line["update"], line["loss"]) for line in metrics(tmp_path / name)] for name in "ab"]
    assert lines[0] == lines[1]
    free = trainer(stream, tmp_path / "c", bleus(1), **{**options, "regularization": None})
    free.run()
    one, other = model_weights(free.model), model_weights(unbroken.model)
    assert any(not torch.equal(one[name], other[name]) for name in one)
