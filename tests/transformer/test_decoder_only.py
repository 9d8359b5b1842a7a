"""Source and target as one sequence: against its twin, and who sees whom."""

import pytest
import torch

from tests.kits.transformer import (
    EXACT,
    HEADS,
    LENGTHS,
    SRC_V,
    TGT_V,
    VARIANTS,
    B,
    D,
    S,
    T,
    batch,
    float64,
    make_only,
    small_only,
)
from tests.kits.transformer_twin import decoder_only_twin
from transformer import DecoderOnly, DecoderOnlyConfig, Parts, plain_attention

_float64 = pytest.fixture(autouse=True)(float64)


@VARIANTS
def test_it_is_its_twin_and_so_are_its_gradients(changes):
    """The twin reads each sentence without padding: targets are counted on from the source's real end."""
    model, (src, mask, tgt) = make_only(**changes), batch()
    logits = model(src, mask, tgt)
    twin = torch.stack([decoder_only_twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])
    torch.testing.assert_close(logits, twin, rtol=1e-10, atol=1e-10)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, twin))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)
        assert one.abs().sum() > 0, name


def test_every_source_token_reaches_every_target_position():
    model, (src, mask, tgt) = make_only(), batch()
    before = model(src, mask, tgt)
    for position in range(S):
        changed = src.clone()
        changed[:, position] = (src[:, position] + 1) % SRC_V
        moved = (model(changed, mask, tgt) - before).abs().amax(-1) > 1e-6
        assert torch.equal(moved, (torch.tensor(LENGTHS) > position).unsqueeze(1).expand(B, T))


def test_the_source_never_sees_the_target():
    """Its keys and values in the whole pass are those that ``encode`` makes without any target."""
    model, (src, mask, tgt) = make_only(), batch()
    seen = []
    for layer in model.layers:
        layer.attention.project_in.register_forward_hook(lambda *call: seen.append(call[-1]))
    model(src, mask, tgt)
    whole, seen[:] = list(seen), []
    memory = model.encode(src, mask)
    for joined, alone, layer in zip(whole, seen, memory.layers, strict=True):
        torch.testing.assert_close(joined[:, :S][mask], alone[mask], **EXACT)
        for part, expected in zip(layer, alone.chunk(3, -1)[1:], strict=True):
            assert torch.equal(part.transpose(1, 2).flatten(2), expected)


def test_one_pass_over_the_source_serves_any_number_of_decodes():
    model, (src, mask, tgt) = make_only(), batch()
    rows = []
    model.layers[0].register_forward_hook(lambda *call: rows.append(call[1][0].shape))
    model.src_table.register_forward_hook(lambda *call: rows.append("source"))
    memory = model.encode(src, mask)
    kept = [part.clone() for layer in memory.layers for part in layer]
    for beam in (1, 4):
        state = model.init_state(memory, beam, T)
        for t in range(T):
            model.step(tgt[:, t : t + 1].expand(B, beam), state, memory)
    assert rows == ["source", (B, S, D)]
    for part, before in zip([part for layer in memory.layers for part in layer], kept, strict=True):
        assert torch.equal(part, before)


def test_attention_is_one_distribution_over_the_source_and_the_past():
    model, (src, mask, tgt) = make_only(), batch()
    weights = model.attention(src, mask, tgt)
    assert set(weights) == {f"{kind}.{n}" for kind in ("cross", "decoder") for n in range(3)}
    for n in range(3):
        source, target = weights[f"cross.{n}"], weights[f"decoder.{n}"]
        assert (source.shape, target.shape) == ((B, HEADS, T, S), (B, HEADS, T, T))
        torch.testing.assert_close(source.sum(-1) + target.sum(-1), torch.ones(B, HEADS, T), **EXACT)
        assert torch.equal(source > 0, mask[:, None, None, :].expand_as(source))
        assert torch.equal(target > 0, torch.ones(T, T).tril().bool().expand_as(target))


def test_attention_is_what_the_last_layer_made_its_output_of():
    """With values rebuilt from the layer's own input, the weights give the contexts that were projected."""
    model, (src, mask, tgt) = make_only(num_layers=1), batch()
    inputs, contexts, layer = [], [], model.layers[0].attention
    layer.project_in.register_forward_hook(lambda *call: inputs.append(call[-1]))
    layer.project_out.register_forward_hook(lambda *call: contexts.append(call[1][0]))
    weights = model.attention(src, mask, tgt)
    values = inputs[0].chunk(3, -1)[2].view(B, S + T, HEADS, -1).transpose(1, 2)
    joined = torch.cat((weights["cross.0"], weights["decoder.0"]), dim=-1) @ values
    torch.testing.assert_close(joined.transpose(1, 2).flatten(2), contexts[0][:, S:], **EXACT)


def test_source_and_target_words_have_embeddings_of_their_own():
    free, joint = make_only(), make_only(tie="all")
    assert free.src_table is not free.table
    assert free.output.weight is free.table.weight
    assert joint.src_table is joint.table
    count = sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in joint.parameters())
    assert count == SRC_V * D
    with pytest.raises(ValueError, match="tie='all' needs one joint vocabulary, got 11 source and 13 target"):
        DecoderOnly(small_only(tie="all"), SRC_V, TGT_V)


def test_an_attention_of_a_study_cannot_be_stepped_here():
    parts = Parts(attend=lambda *call: plain_attention(*call)[0])
    with pytest.raises(ValueError, match="attend cannot be replaced in DecoderOnly: a step attends"):
        DecoderOnly(small_only(), SRC_V, TGT_V, parts)


def test_it_starts_as_the_transformer_does():
    model = DecoderOnly(DecoderOnlyConfig(d_model=64, positions="learned", num_layers=2), 3000, 3000)
    for module in (model.src_table, model.table, model.place.places, model.output):
        assert module.weight.std().item() * 8 == pytest.approx(1, abs=0.02)
    bound = (6 / (64 + 192)) ** 0.5
    for layer in model.layers:
        assert layer.attention.project_in.weight.abs().max().item() == pytest.approx(bound, rel=1e-2)
        assert (layer.attention.project_in.bias == 0).all()
