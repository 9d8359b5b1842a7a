"""What compare/protocol.py asks of a model, and what search makes of it, for every preset alike.

In float64, where rounding cannot hide a fault: a result that depends on a neighbour or on padding differs
by far more than 1e-12.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from compare.config import ModelConfig
from compare.models import Blueprint, build, resolve
from compare.objective import Objective
from compare.optim import OptimConfig, build_optimizer
from compare.presets import PRESETS
from compare.protocol import EncoderDecoder, keep, select
from compare.search import Hypothesis, SpecialIds, search
from seq2seq.scores import SCORES

if TYPE_CHECKING:
    from compare.models import Model

PAD, BOS, EOS = 0, 2, 3
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
V = 13
TINY = {
    "d_model": 6,
    "ffn_size": 10,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "embedding_size": 6,
    "hidden_size": 8,
    "encoder_size": 12,
    "dropout": 0.3,
}
"""Sizes for every preset that has them; the source is as wide as the target, so that all can be tied."""
EXACT = {"rtol": 0.0, "atol": 1e-12}
LENGTHS = (5, 3, 1, 4)
VARIANTS = [(name, "all" if number % 2 else "output") for number, name in enumerate(PRESETS)]
"""Each preset, and how its matrices are tied: in one way each, since little else depends on that."""


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tiny(name: str, tie: str = "output") -> Blueprint:
    """A preset at sizes at which every limit that it has is met: window, largest positions, layers."""
    settings = resolve(ModelConfig(preset=name, label=name)).settings()
    changes = {key: value for key, value in TINY.items() if settings.get(key) is not None}
    changes["tie"] = tie
    changes |= {"num_heads": 2} if settings.get("num_heads", 1) > 1 else {}
    changes |= {"num_layers": 3} if settings.get("num_layers", 1) > 1 else {}
    changes |= {"window": 2} if settings.get("scope", "global") != "global" else {}
    changes |= {"attention_size": 4} if settings.get("attention_size") else {}
    if (score := SCORES.get(settings.get("score", ""))) is not None:
        changes |= {"max_source": 4} if score.by_source_place else {}
        changes |= {"max_target": 4} if score.by_target_place else {}
    return resolve(ModelConfig(preset=name, label=name, overrides=changes))


def make(name: str, tie: str = "output", seed: int = 0) -> "Model":
    """A preset at tiny size."""
    architecture = tiny(name, tie).architecture
    torch.manual_seed(seed)
    return build(architecture, V if tie == "all" else V - 2, V)


def sharpen(model: nn.Module, seed: int = 5) -> None:
    """Move every weight far from its start, so that all of them count and no two tokens score alike."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))


@pytest.fixture(params=VARIANTS, ids="-".join)
def model(request: pytest.FixtureRequest) -> "Model":
    made = make(*request.param).eval()
    sharpen(made)
    return made


def sources(
    lengths: tuple[int, ...] = LENGTHS, width: int | None = None, seed: int = 1
) -> tuple[Tensor, Tensor]:
    """Random sources (B, S) and their mask; a sentence is the same whatever the ``width``."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(width or max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    src = torch.full(mask.shape, PAD)
    for row, length in enumerate(lengths):
        src[row, : length - 1] = torch.randint(4, V - 2, (length - 1,), generator=generator)
        src[row, length - 1] = EOS
    return src, mask


def targets(steps: int = 6, rows: int = len(LENGTHS)) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(4, V, (rows, steps), generator=generator)
    ids[:, 0] = BOS
    return ids


def leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    assert isinstance(tree, Tensor)
    return [tree]


def stepped(model: "Model", src: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    """Logits (B, K, T, V) of tokens (B, K, T), fed one by one."""
    memory = model.encode(src, mask)
    state = model.init_state(memory, tokens.size(1), tokens.size(2))
    found = []
    for t in range(tokens.size(2)):
        logits, state = model.step(tokens[:, :, t], state, memory)
        found.append(logits)
    return torch.stack(found, dim=2)


# --- the protocol


def test_it_fits_the_protocol(model: "Model"):
    assert isinstance(model, EncoderDecoder)
    assert isinstance(model.output, nn.Linear)
    assert model.output.out_features == V
    (src, mask), tgt_in = sources(), targets()
    features = model.features(src, mask, tgt_in)
    assert features.hidden.shape == (4, 6, model.output.in_features)
    assert features.choice_logp is None
    assert features.value is None
    assert torch.equal(model(src, mask, tgt_in), model.output(features.hidden))
    assert all(leaf.size(0) == 4 for leaf in leaves(model.encode(src, mask)))


def test_ties_share_storage():
    for name, tie in VARIANTS:
        made = make(name, tie)
        tables = [part.weight for part in made.modules() if isinstance(part, nn.Embedding)]
        assert any(table is made.output.weight for table in tables), name
        assert (len({id(table) for table in tables}) == 1) == (tie == "all"), name


def test_stepping_gives_the_logits_of_the_full_pass(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    torch.testing.assert_close(
        stepped(model, src, mask, tgt_in[:, None])[:, 0], model(src, mask, tgt_in), **EXACT
    )


def test_a_position_sees_no_later_token(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    other = tgt_in.clone()
    other[:, 3:] = torch.where(tgt_in[:, 3:] == 5, 6, 5)
    one, two = model(src, mask, tgt_in), model(src, mask, other)
    torch.testing.assert_close(one[:, :3], two[:, :3], **EXACT)
    assert ((one[:, 3] - two[:, 3]).abs().amax(dim=1) > 1e-3).all()


def test_the_source_matters(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    for place in range(LENGTHS[0]):
        other = src.clone()
        other[0, place] = 4 + (src[0, place] - 3) % 6
        assert not torch.allclose(model(src, mask, tgt_in)[0], model(other, mask, tgt_in)[0], atol=1e-6)


def test_padding_changes_nothing(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    expected = model(src, mask, tgt_in)
    wide_src, wide_mask = sources(width=9)
    torch.testing.assert_close(model(wide_src, wide_mask, tgt_in), expected, **EXACT)
    noise = torch.where(wide_mask, wide_src, 7)  # what stands under the padding does not count
    torch.testing.assert_close(model(noise, wide_mask, tgt_in), expected, **EXACT)
    longer = torch.cat((tgt_in, torch.full((4, 3), PAD)), dim=1)
    torch.testing.assert_close(model(src, mask, longer)[:, :6], expected, **EXACT)


def test_rows_are_independent(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    together = model(src, mask, tgt_in)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], mask[row : row + 1, :length], tgt_in[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **EXACT)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(src[order], mask[order], tgt_in[order]), together[order], **EXACT)


def test_a_beam_is_as_many_separate_hypotheses(model: "Model"):
    src, mask = sources()
    tokens = torch.stack([targets().roll(k, dims=0) for k in range(3)], dim=1)  # (B, 3, T)
    together = stepped(model, src, mask, tokens)
    for k in range(3):
        torch.testing.assert_close(together[:, k], model(src, mask, tokens[:, k]), **EXACT)


def test_a_reordered_state_goes_on_as_its_parent(model: "Model"):
    """Sentences leave and beams change places after two tokens; each goes on as if it had been alone."""
    src, mask = sources()
    tokens = torch.stack([targets().roll(k, dims=0) for k in range(3)], dim=1)
    rows, parents = torch.tensor([0, 3]), torch.tensor([[2, 0, 0], [1, 2, 1]])
    memory = model.encode(src, mask)
    state = model.init_state(memory, 3, 6)
    for t in range(2):
        _, state = model.step(tokens[:, :, t], state, memory)
    memory, state = keep(memory, rows), select(keep(state, rows), parents)
    past = tokens[rows, :, :2].gather(1, parents.unsqueeze(2).expand(-1, -1, 2))
    for t in range(2, 5):
        logits, state = model.step(tokens[rows, :, t], state, memory)
        past = torch.cat((past, tokens[rows, :, t : t + 1]), dim=2)
        for k in range(3):
            expected = model(src[rows], mask[rows], past[:, k])[:, -1]
            torch.testing.assert_close(logits[:, k], expected, **EXACT)


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_the_seed_decides_the_weights(name: str, tie: str):
    one, two, other = (make(name, tie, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
    assert all(tensor.isfinite().all() for tensor in one.values())


def test_dropout_acts_in_training_only(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    assert torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))
    model.train()
    assert not torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))


def test_attention_rows_are_weights_over_what_may_be_seen(model: "Model"):
    """What a kind's weights are exactly, its room's tests say; no kind sees padding or the future."""
    (src, mask), tgt_in = sources(width=7), targets()
    weights = model.attention(src, mask, tgt_in)
    assert bool(weights) == (getattr(model.config, "attention", "") is not None)
    for name, table in weights.items():
        kind = name.split(".")[0]
        rows, columns = (7, 7) if kind == "encoder" else (6, 6) if kind == "decoder" else (6, 7)
        assert (table.size(0), *table.shape[2:]) == (4, rows, columns)
        assert (table >= 0).all()
        assert (table.sum(-1) < 1 + 1e-12).all()
        assert (table.sum(-1) > 0).any()
        if kind == "decoder":
            assert (table.triu(1) == 0).all()
        else:
            real = mask[:, None, :, None] if kind == "encoder" else torch.tensor(True)
            assert (table[(~mask[:, None, None] & real).expand_as(table)] == 0).all()


# --- search over it


@cache
def varied(name: str, tie: str) -> "Model":
    """Sharpened by the first seed under which 64 sources get more than 8 translations between them."""
    lengths = tuple([3, 5, 7, 8] * 16)
    src, mask = sources(lengths, seed=9)
    for seed in range(200):
        model = make(name, tie).eval()
        sharpen(model, seed)
        found = search(model, src, mask, limits=torch.tensor(lengths), special=SPECIAL, beam_size=3)
        if len({tuple(one.tokens[:4]) for one in found}) > 8:
            return model
    raise AssertionError(f"{name}: no seed gives varied translations")


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_search_does_not_depend_on_batch_order_or_padding(name: str, tie: str, beam: int):
    """64 sentences at once, shuffled, further padded and some one by one: the same tokens and scores."""
    model = varied(name, tie)
    generator = torch.Generator().manual_seed(3)
    lengths = tuple((1 + torch.randint(0, 8, (64,), generator=generator)).tolist())
    (src, mask), (wide, wide_mask) = sources(lengths), sources(lengths, width=12)
    limits = torch.tensor(lengths) + 3

    def find(rows: Tensor, src: Tensor, mask: Tensor) -> list[Hypothesis]:
        return search(
            model, src[rows], mask[rows], limits=limits[rows], special=SPECIAL, beam_size=beam, alpha=0.7
        )

    everyone = torch.arange(64)
    expected = find(everyone, src, mask)
    assert len({tuple(found.tokens) for found in expected}) > 4
    assert len({len(found.tokens) for found in expected}) > 1
    assert {BOS, EOS, PAD}.isdisjoint(token for found in expected for token in found.tokens)
    order = torch.randperm(64, generator=generator)
    shuffled = find(order, src, mask)
    others = {
        "padded": find(everyone, wide, wide_mask),
        "shuffled": [shuffled[int(place)] for place in order.argsort()],
        "alone": [
            find(everyone[row : row + 1], src[:, :n], mask[:, :n])[0] for row, n in enumerate(lengths[:24])
        ],
    }
    for name, found in others.items():
        same = expected[: len(found)]
        assert [one.tokens for one in found] == [one.tokens for one in same], name
        scores = torch.tensor([[one.score for one in group] for group in (found, same)])
        torch.testing.assert_close(*scores, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_score_is_the_log_probability_of_its_tokens(model: "Model"):
    """Rescored by the full pass, which knows nothing of beams, caches or compaction."""
    src, mask = sources()
    model.output.weight.mul_(2.0)
    for found, row in zip(
        search(model, src, mask, limits=torch.full((4,), 7), special=SPECIAL, beam_size=3, alpha=0.6),
        range(4),
        strict=True,
    ):
        tgt_in = torch.tensor([[BOS, *found.tokens]])
        logp = model(src[row : row + 1], mask[row : row + 1], tgt_in)[0].log_softmax(dim=-1)
        total = logp[torch.arange(tgt_in.size(1)), torch.tensor([*found.tokens, EOS])].sum()
        score = total / ((5 + tgt_in.size(1)) / 6) ** 0.6
        assert found.score == pytest.approx(float(score), abs=1e-10)


# --- training it


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_every_weight_has_a_gradient(name: str, tie: str):
    made = make(name, tie)
    sharpen(made)
    (src, mask), tgt_in = sources(), targets()
    Objective(made, 0.1)(src, mask, tgt_in, tgt_in.roll(-1, 1), torch.ones_like(tgt_in, dtype=torch.bool))[
        0
    ].backward()
    for key, parameter in made.named_parameters():
        assert parameter.grad is not None, key
        assert (parameter.grad != 0).any(), key


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_thirty_updates_learn_to_copy(name: str, tie: str):
    losses = learn_to_copy(make(name, tie), updates=30, rate=1e-2)
    assert losses[0] == pytest.approx(2.6, abs=0.9)  # near ln V: nothing is known yet
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]


def learn_to_copy(model: "Model", *, updates: int, rate: float) -> list[float]:
    """Train on 24 short sentences; the loss a token of each update."""
    objective = Objective(model, 0.0)
    optimizer = build_optimizer(objective.parameters(), OptimConfig(learning_rate=rate))
    src, mask = sources(tuple([2, 3, 4] * 8), seed=4)
    tgt_in = torch.cat((torch.full((24, 1), BOS), src[:, :-1]), dim=1).masked_fill(~mask, PAD)
    losses = []
    for _ in range(updates):
        loss = objective(src, mask, tgt_in, src, mask)
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.nll) / loss.tokens)
    return losses
