"""The decoder alone: against its twin, step by step, under masks, and learning to count."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from compare.protocol import keep, select
from tests.kits.transformer import EXACT, HEADS, TGT_V, VARIANTS, B, T, float64, make_language_model
from tests.kits.transformer_twin import language_model_twin
from transformer import DecoderOnlyConfig, LanguageModel

_float64 = pytest.fixture(autouse=True)(float64)


def texts() -> torch.Tensor:
    return torch.randint(TGT_V, (B, T))


@VARIANTS
def test_it_is_its_twin_and_so_are_its_gradients(changes):
    model, ids = make_language_model(**changes), texts()
    logits, twin = model(ids), torch.stack([language_model_twin(model, row) for row in ids])
    torch.testing.assert_close(logits, twin, rtol=1e-10, atol=1e-10)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, twin))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)


def test_a_position_never_sees_a_later_token():
    model, ids = make_language_model(), texts()
    before = model(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t] = (ids[:, t] + 1) % TGT_V
        after = model(changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], **EXACT)
        assert ((after[:, t:] - before[:, t:]).abs().amax(-1) > 1e-6).all()


@VARIANTS
def test_reordered_steps_give_the_logits_of_the_full_pass(changes):
    beam, model = 3, make_language_model(**changes)
    state, history = model.init_state(B, beam, 6), torch.empty(B, beam, 0, dtype=torch.long)
    for step in range(6):
        tokens = torch.randint(TGT_V, (len(history), beam))
        history = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits.flatten(0, 1), model(history.flatten(0, 1))[:, -1], **EXACT)
        parents = torch.randint(beam, (len(history), beam))
        state = select(state, parents)
        history = history.gather(1, parents.unsqueeze(2).expand_as(history))
        if step == 3:
            left = torch.tensor([0, 2])
            state, history = keep(state, left), history[left]


def test_a_general_mask_takes_from_the_past():
    """A window of 2 in each of 3 layers: what is 4 tokens back is out of reach, what is 3 back is not."""
    model, ids = make_language_model(), texts()
    window = torch.ones(T, T, dtype=torch.bool).triu(-1)
    before, changed = model(ids, window), ids.clone()
    changed[:, 0] = (ids[:, 0] + 1) % TGT_V
    moved = (model(changed, window) - before).abs().amax(-1) > 1e-9
    assert moved.tolist() == [[True, True, True, True, False]] * B
    assert torch.equal(model.attention(ids, window)["decoder.1"] > 0, window.tril().expand(B, HEADS, T, T))
    torch.testing.assert_close(model(ids, window.expand(B, T, T)), before, **EXACT)
    torch.testing.assert_close(model(ids, torch.ones(T, T, dtype=torch.bool)), model(ids), **EXACT)
    with pytest.raises(ValueError, match="leaves a position nothing to attend to"):
        model(ids, torch.ones(T, T, dtype=torch.bool).triu(1))


def test_attention_rows_are_distributions_over_the_past():
    weights = make_language_model().attention(texts())
    assert set(weights) == {"decoder.0", "decoder.1", "decoder.2"}
    for matrix in weights.values():
        torch.testing.assert_close(matrix.sum(-1), torch.ones(B, HEADS, T), **EXACT)
        assert torch.equal(matrix > 0, torch.ones(T, T).tril().bool().expand_as(matrix))


def test_a_tied_output_is_the_embedding_and_a_free_one_is_not():
    for tie in ("none", "output", "all"):
        model = make_language_model(tie=tie)
        assert (model.output.weight is model.table.weight) == (tie != "none")


def test_it_steps_in_bf16():
    torch.set_default_dtype(torch.float32)
    model, ids = make_language_model().float(), texts()
    exact = model(ids)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        state = model.init_state(B, 1, T)
        for t in range(T):
            logits, state = model.step(ids[:, t : t + 1], state)
    assert (logits[:, 0].float() - exact[:, -1]).abs().max() / exact.std() < 0.2


def test_it_learns_a_text_that_only_the_past_predicts():
    """Two tokens in turn, a b a b a b: the loss falls from ln 5, knowing nothing, to near nothing."""
    torch.set_default_dtype(torch.float32)
    config = DecoderOnlyConfig(d_model=32, num_heads=2, num_layers=2, ffn_size=64, dropout=0.0)
    model = LanguageModel(config, 5)
    rows = torch.cartesian_prod(torch.arange(5), torch.arange(5)).repeat(1, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        logits = model(rows[:, :-1])[:, 1:]  # the second token is anyone's guess
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.9 * math.log(5)
    assert losses[-1] < 0.1
