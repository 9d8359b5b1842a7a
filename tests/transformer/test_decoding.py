"""Tests of both translating Transformers: no token sees masked positions, and a step is a position."""

from collections.abc import Callable

import pytest
import torch

from compare.protocol import EncoderDecoder, keep, select
from tests.kits.transformer import (
    EXACT,
    HEADS,
    LENGTHS,
    NORMS,
    SRC_V,
    TGT_V,
    VARIANTS,
    B,
    D,
    S,
    T,
    batch,
    float64,
    make,
    make_only,
)
from transformer.cache import KeyValueCache

_float64 = pytest.fixture(autouse=True)(float64)
KINDS = pytest.mark.parametrize("make", [make, make_only])
Make = Callable[..., EncoderDecoder]


@KINDS
def test_it_fits_the_protocol(make: Make):
    assert isinstance(make(), EncoderDecoder)


@KINDS
@NORMS
def test_a_position_never_sees_a_later_token(make: Make, norm: str):
    model, (src, mask, tgt) = make(norm=norm), batch()
    before = model(src, mask, tgt)
    for t in range(T):
        changed = tgt.clone()
        changed[:, t] = (tgt[:, t] + 1) % TGT_V
        after = model(src, mask, changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], **EXACT)
        assert ((after[:, t:] - before[:, t:]).abs().amax(-1) > 1e-6).all()


@KINDS
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_more_padding_and_what_stands_in_it_change_nothing(make: Make, positions: str):
    model, (src, mask, tgt) = make(positions=positions), batch()
    before = model(src, mask, tgt)
    wide = torch.randint(SRC_V, (B, S + 9))
    wide[:, :S] = torch.where(mask, src, wide[:, :S])
    assert not torch.equal(wide[:, :S], src)
    wide_mask = torch.nn.functional.pad(mask, (0, 9))
    longer = torch.cat([tgt, torch.randint(TGT_V, (B, 4))], dim=1)
    torch.testing.assert_close(model(wide, wide_mask, longer)[:, :T], before, **EXACT)
    model(wide, wide_mask, longer).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@KINDS
def test_a_sentence_does_not_depend_on_its_neighbours(make: Make):
    model, (src, mask, tgt) = make(), batch()
    together = model(src, mask, tgt)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], mask[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **EXACT)


@KINDS
@VARIANTS
def test_stepping_gives_the_logits_of_the_full_pass(make: Make, changes: dict[str, object]):
    model, (src, mask, tgt) = make(**changes), batch()
    full = model(src, mask, tgt)
    memory = model.encode(src, mask)
    state = model.init_state(memory, beam=1, capacity=T)
    for t in range(T):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(logits[:, 0], full[:, t], **EXACT)
    with pytest.raises(ValueError, match="holds 5 tokens at most"):
        model.step(tgt[:, :1], state, memory)


@KINDS
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_hypotheses_reordered_at_random_and_sentences_dropped_go_on_as_if_alone(make: Make, positions: str):
    """Each hypothesis carries its own history through 9 steps; a full pass over it must agree at each."""
    beam, steps = 4, 9
    model, (src, mask, _) = make(head_size=3, positions=positions), batch()
    memory = model.encode(src, mask)
    state = model.init_state(memory, beam, steps)
    history = torch.empty(B, beam, 0, dtype=torch.long)
    rows = torch.arange(B)
    for step in range(steps):
        tokens = torch.randint(TGT_V, (len(rows), beam))
        history = torch.cat([history, tokens.unsqueeze(2)], dim=2)
        logits, state = model.step(tokens, state, memory)
        for k in range(beam):
            alone = model(src[rows], mask[rows], history[:, k])
            torch.testing.assert_close(logits[:, k], alone[:, -1], **EXACT)
        parents = torch.randint(beam, (len(rows), beam))
        state = select(state, parents)
        history = torch.stack([history[b, parents[b]] for b in range(len(rows))])
        if step in (3, 6):  # sentence 1, then sentence 0 is finished
            left = torch.arange(1, len(rows)) if step == 6 else torch.tensor([0, 2])
            memory, state = keep(memory, left), keep(state, left)
            rows, history = rows[left], history[left]
    assert rows.tolist() == [2]


@KINDS
def test_memory_has_one_row_a_sentence(make: Make):
    model, (src, mask, _) = make(head_size=3), batch()
    memory = model.encode(src, mask)
    assert all(part.shape == (B, HEADS, S, 3) for layer in memory.layers for part in layer)
    assert torch.equal(memory.mask, mask[:, None, None, :])


def test_a_cache_reorders_within_a_sentence():
    cache = KeyValueCache(torch.empty(0), (B, 2, D), capacity=T)
    first, second = torch.randn(2, B, 2, D)
    cache.append(first, -first)
    cache.select(torch.tensor([[1, 1], [0, 0], [1, 0]]))
    keys, values = cache.append(second, -second)
    reordered = torch.stack([first[0, [1, 1]], first[1, [0, 0]], first[2, [1, 0]]])
    assert torch.equal(keys, torch.stack([reordered, second]))
    assert torch.equal(values, -keys)


@pytest.mark.parametrize(("key_size", "value_size"), [(D, D), (D, 3), (3, D)])
def test_a_cache_gives_back_keys_and_values_of_any_width(key_size: int, value_size: int) -> None:
    given = torch.randn(T, B, 2, key_size), torch.randn(T, B, 2, value_size)
    cache = KeyValueCache(torch.empty(0), (B, 2, D), capacity=T)
    for keys, values in zip(*given, strict=True):
        found = cache.append(keys, values)
    assert all(map(torch.equal, found, given))
    assert cache.length == T


@KINDS
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_bf16_autocast_trains_and_steps(make: Make, device: str):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.set_default_dtype(torch.float32)
    model = make().float().to(device)
    src, mask, tgt = (tensor.to(device) for tensor in batch())
    exact = model(src, mask, tgt)
    with torch.autocast(device, torch.bfloat16):
        hidden = model.train().features(src, mask, tgt).hidden
    hidden.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    with torch.autocast(device, torch.bfloat16), torch.inference_mode():
        memory = model.encode(src, mask)
        state = model.init_state(memory, beam=2, capacity=T)
        for t in range(T):
            logits, state = model.step(tgt[:, t : t + 1].expand(B, 2), state, memory)
            state = select(state, torch.tensor([[1, 0]], device=device).expand(B, 2))
    error = (logits[:, 1].float() - exact[:, -1]).abs().max() / exact.std()
    assert error < 0.2
