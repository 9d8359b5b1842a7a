"""The recurrent room: against torch's modules, formulas written out, hand computation and invariances."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from compare.protocol import EncoderDecoder, keep, select
from seq2seq import AdditiveScore, Decoder, DotScore, GeneralScore, Seq2Seq, Seq2SeqConfig, attend
from seq2seq.cells import Product, Stepwise
from seq2seq.encoder import reversal

V = 11  # vocabulary
LENGTHS = torch.tensor([6, 2, 4, 1])
MASK = torch.arange(6) < LENGTHS.unsqueeze(1)
SRC = torch.randint(V, (4, 6), generator=torch.Generator().manual_seed(1))
TGT = torch.randint(V, (4, 5), generator=torch.Generator().manual_seed(2))

KINDS = {
    "lstm": {"attention": "none"},
    "bahdanau": {"attention": "additive", "placement": "before"},
    "dot-before": {"attention": "dot", "placement": "before"},
    **{
        f"luong-{kind}{'-feed' if feed else ''}": {
            "attention": kind,
            "placement": "after",
            "input_feeding": feed,
        }
        for kind, feed in itertools.product(("additive", "dot", "general", "concat"), (False, True))
    },
}
SHAPES = {
    "lstm1": {"cell": "lstm"},
    "lstm2": {"cell": "lstm", "num_layers": 2, "reverse_source": True, "tie": "output"},
    "gru1": {"cell": "gru", "bidirectional": False, "reverse_source": True},
    "gru2": {"cell": "gru", "num_layers": 2, "tie": "all"},
}


def make(kind: str, shape: str = "lstm1", **changes: object) -> Seq2Seq:
    """A small float64 model with weights large enough for every part of it to matter."""
    settings = {"embedding_size": 6, "hidden_size": 8, **KINDS[kind], **SHAPES[shape], **changes}
    torch.manual_seed(3)
    model = Seq2Seq(Seq2SeqConfig(**settings), V, V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.8, 0.8)
    return model


@pytest.fixture(params=itertools.product(KINDS, SHAPES), ids="-".join)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return make(*request.param)


def close(left: Tensor, right: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# --- every model ------------------------------------------------------------------------------------------


def test_a_model_fits_the_protocol(model: Seq2Seq) -> None:
    assert isinstance(model, EncoderDecoder)
    features = model.features(SRC, MASK, TGT)
    assert features.choice_logp is None
    assert features.value is None
    close(model(SRC, MASK, TGT), model.output(features.hidden))


def test_stepping_gives_the_logits_of_the_full_pass(model: Seq2Seq) -> None:
    full = model(SRC, MASK, TGT)
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=1, capacity=5)
    for t in range(5):
        logits, state = model.step(TGT[:, t : t + 1], state, memory)
        close(logits[:, 0], full[:, t])


def test_more_padding_and_what_stands_in_it_change_nothing(model: Seq2Seq) -> None:
    garbage = torch.randint(V, (4, 9), generator=torch.Generator().manual_seed(4))
    garbage[:, :6] = torch.where(MASK, SRC, garbage[:, :6])
    mask = torch.arange(9) < LENGTHS.unsqueeze(1)
    close(model(garbage, mask, TGT), model(SRC, MASK, TGT))


def test_a_row_does_not_depend_on_its_neighbours(model: Seq2Seq) -> None:
    full = model(SRC, MASK, TGT)
    for row, length in enumerate(LENGTHS):
        alone = model(SRC[row : row + 1, :length], MASK[row : row + 1, :length], TGT[row : row + 1])
        close(alone[0], full[row])
    turned = torch.tensor([2, 0, 3, 1])
    close(model(SRC[turned], MASK[turned], TGT[turned]), full[turned])


def test_hypotheses_of_a_beam_step_as_if_alone(model: Seq2Seq) -> None:
    """Three hypotheses, reordered between the steps, against each history fed again by itself."""
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, beam=3, capacity=4)
    draw = torch.Generator().manual_seed(5)
    history = torch.empty(4, 3, 0, dtype=torch.long)
    for _ in range(4):
        tokens = torch.randint(V, (4, 3), generator=draw)
        parents = torch.randint(3, (4, 3), generator=draw)
        logits, state = model.step(tokens, state, memory)
        history = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        for k in range(3):
            close(logits[:, k], model(SRC, MASK, history[:, k])[:, -1])
        state, history = select(state, parents), select(history, parents)


def test_finished_sentences_can_leave_memory_and_state(model: Seq2Seq) -> None:
    memory = model.encode(SRC, MASK)
    _, state = model.step(TGT[:, :2], model.init_state(memory, 2, 3), memory)
    expected, _ = model.step(TGT[:, 2:4], state, memory)
    rows = torch.tensor([3, 1])
    kept, _ = model.step(TGT[rows, 2:4], keep(state, rows), keep(memory, rows))
    close(kept, expected[rows])


def test_attention_weights_are_a_distribution_over_real_tokens(model: Seq2Seq) -> None:
    found = model.attention(SRC, MASK, TGT)
    if model.config.attention == "none":
        assert found == {}
        return
    weights = found["cross"]
    assert weights.shape == (4, 1, 5, 6)
    close(weights.sum(-1), torch.ones(4, 1, 5, dtype=torch.float64))
    padding = ~MASK[:, None, None].expand_as(weights)
    assert (weights[padding] == 0).all()
    assert (weights[~padding] > 0).all()


def test_every_parameter_is_trained_by_right_gradients(model: Seq2Seq) -> None:
    """Against a difference quotient along one random direction through all parameters together."""
    parameters = list(model.parameters())
    weight = torch.randn(4, 5, V, dtype=torch.float64)
    (model(SRC, MASK, TGT) * weight).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in parameters)
    direction = [torch.randn_like(p) for p in parameters]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True))
    values = []
    with torch.no_grad():
        for shift in (1e-6, -2e-6):
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=shift)
            values.append(float((model(SRC, MASK, TGT) * weight).sum()))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6, abs=1e-6)


def test_one_seed_gives_one_set_of_weights() -> None:
    for shape in SHAPES.values():
        config = Seq2SeqConfig(embedding_size=6, hidden_size=8, **shape)
        torch.manual_seed(7)
        one = Seq2Seq(config, V, V)
        torch.manual_seed(7)
        two = Seq2Seq(config, V, V)
        for left, right in zip(one.parameters(), two.parameters(), strict=True):
            assert torch.equal(left, right)


# --- scores and attend ------------------------------------------------------------------------------------

SCORES = {
    "additive": lambda: AdditiveScore(3, 4, 5).double(),
    "dot": lambda: DotScore(4, 4).double(),
    "general": lambda: GeneralScore(3, 4).double(),
}


def by_formula(score: nn.Module, q: Tensor, h: Tensor) -> Tensor:
    """One number from one query and one encoder state, as the papers write it."""
    if isinstance(score, AdditiveScore):
        return score.energy.weight[0].dot(torch.tanh(score.query.weight.mv(q) + score.key.weight.mv(h)))
    if isinstance(score, GeneralScore):
        return q.dot(score.key.weight.mv(h))
    return q.dot(h)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_formula(name: str) -> None:
    score = SCORES[name]()
    query, values = double(2, 3, 4 if name == "dot" else 3), double(2, 6, 4)
    found = score.score(query, score.project(values))
    assert found.shape == (2, 3, 6)
    for b, q, s in itertools.product(range(2), range(3), range(6)):
        close(found[b, q, s], by_formula(score, query[b, q], values[b, s]))


def test_additive_is_luongs_concat_with_the_matrix_cut_in_two() -> None:
    score = AdditiveScore(3, 4, 5).double()
    joined = torch.cat((score.query.weight, score.key.weight), dim=1)  # W_a
    query, values = double(1, 1, 3), double(1, 1, 4)
    expected = score.energy.weight[0].dot(joined.mv(torch.cat((query[0, 0], values[0, 0]))).tanh())
    close(score.score(query, score.project(values))[0, 0, 0], expected)


@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_a_score_and_of_attend(name: str) -> None:
    score = SCORES[name]()
    mask = torch.tensor([[True, True, False], [True, False, False]])

    def run(query: Tensor, values: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return attend(score.score(query, score.project(values)), values, mask)

    inputs = (double(2, 2, 4 if name == "dot" else 3), double(2, 3, 4), *score.parameters())
    assert torch.autograd.gradcheck(run, inputs)


def test_additive_attention_matches_hand_computation() -> None:
    """All weights 1, all sizes 1: the score is tanh(q + h), so the weights have a closed form."""
    score = AdditiveScore(query_size=1, value_size=1, attention_size=1).double()
    for parameter in score.parameters():
        nn.init.ones_(parameter)
    values = torch.tensor([[[0.5], [-1.0], [9.0]]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    query = torch.tensor([[[0.25]]], dtype=torch.float64)

    context, weights = attend(score.score(query, score.project(values)), values, mask)

    p = 1 / (1 + math.exp(math.tanh(0.25 - 1.0) - math.tanh(0.25 + 0.5)))
    close(weights, torch.tensor([[[p, 1 - p, 0.0]]], dtype=torch.float64))
    close(context, torch.tensor([[[0.5 * p - (1 - p)]]], dtype=torch.float64))


# --- the decoder against a plain twin ---------------------------------------------------------------------


def twin(model: Seq2Seq, row: int) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and weights of one sentence by the papers' equations: torch's cells, one vector at a time."""
    decoder, config = model.decoder, model.config
    kind = nn.LSTMCell if config.cell == "lstm" else nn.GRUCell
    cells = []
    for weights in decoder.rnn.all_weights:
        cell = kind(weights[0].size(1), config.hidden_size).double()
        for own, given in zip(cell.parameters(), weights, strict=True):
            own.data.copy_(given)
        cells.append(cell)
    memory = model.encode(SRC[row : row + 1], MASK[row : row + 1])
    real = int(LENGTHS[row])
    start = memory.start[0]
    h = [part[: config.hidden_size] for part in start]
    c = [part[config.hidden_size :] for part in start]
    feed = torch.zeros(config.output_size, dtype=torch.float64)
    logits, seen = [], []

    def look(query: Tensor) -> Tensor:
        values = memory.values[0, :real]
        scores = torch.stack([by_formula(decoder.scorer, query, value) for value in values])
        seen.append(scores.softmax(0))
        return (seen[-1].unsqueeze(1) * values).sum(0)

    for token in TGT[row]:
        embedded = decoder.embedding.weight[token]
        inputs = [embedded]
        if decoder.before:
            context = look(h[-1])
            inputs.append(context)
        elif config.input_feeding:
            inputs.append(feed)
        x = torch.cat(inputs)
        for layer, cell in enumerate(cells):
            if config.cell == "lstm":
                h[layer], c[layer] = cell(x, (h[layer], c[layer]))
            else:
                h[layer] = cell(x, h[layer])
            x = h[layer]
        if decoder.after:
            joined = [h[-1], look(h[-1])]
        else:
            joined = [h[-1], context, embedded] if decoder.before else [h[-1], embedded]
        feed = torch.tanh(decoder.readout.weight.mv(torch.cat(joined)) + decoder.readout.bias)
        logits.append(model.output.weight.mv(feed) + model.output.bias)
    return logits, seen


def test_a_model_is_the_papers_equations(model: Seq2Seq) -> None:
    logits, found = model(SRC, MASK, TGT), model.attention(SRC, MASK, TGT)
    for row in range(4):
        expected, weights = twin(model, row)
        close(logits[row], torch.stack(expected))
        if weights:
            close(found["cross"][row, 0, :, : LENGTHS[row]], torch.stack(weights))


@pytest.mark.parametrize("kind", ["luong-general", "luong-additive", "lstm"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_fused_path_is_the_loop(kind: str, shape: str) -> None:
    decoder = make(kind, shape).decoder
    memory = make(kind, shape).encode(SRC, MASK)
    embedded = decoder.embedding(TGT.t())
    state = decoder.init_state(memory, beam=1)
    fused = decoder._fused(embedded, state, memory)
    looped = decoder._loop(embedded, state, memory)
    close(fused[0], looped[0])
    close(fused[1], looped[1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("fed_size", [0, 2, 5])
def test_stepwise_is_torchs_rnn_with_its_gradients(kind: type[nn.RNNBase], fed_size: int) -> None:
    """A split of the input into known and fed parts, two layers, seven steps."""
    torch.manual_seed(0)
    rnn = kind(5, 4, num_layers=2).double()
    x, start = double(7, 3, 5), double(2, 2, 3, 4)
    lstm = kind is nn.LSTM
    expected, _ = rnn(x, (start[0], start[1]) if lstm else start[0])
    known, fed = x[..., : 5 - fed_size], x[..., 5 - fed_size :]
    cells = Stepwise(rnn, known)
    h, c = list(start[0]), list(start[1])
    outputs = []
    for t in range(7):
        cells(t, fed[t], h, c)
        outputs.append(h[-1])
    close(torch.stack(outputs), expected, 1e-10)
    weight = torch.randn_like(expected)
    wanted = (x, start, *rnn.parameters())
    for left, right in zip(
        torch.autograd.grad((torch.stack(outputs) * weight).sum(), wanted),
        torch.autograd.grad((expected * weight).sum(), wanted),
        strict=True,
    ):
        close(left, right, 1e-10)


def test_gradients_of_a_product() -> None:
    def run(weight: Tensor, offsets: Tensor, x: Tensor) -> Tensor:
        product = Product(weight, offsets)
        return torch.stack([product(a, b).sin() for a, b in zip(product.offsets.unbind(), x, strict=True)])

    assert torch.autograd.gradcheck(run, (double(3, 2), double(4, 5, 3), double(4, 5, 2)))


# --- the encoder ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_encoder_is_torchs_rnn_on_each_sentence_alone(shape: str) -> None:
    encoder = make("bahdanau", shape).encoder
    states, mask, summary = encoder(SRC, MASK)
    assert mask is MASK
    assert (states[~MASK] == 0).all()
    for row, length in enumerate(LENGTHS):
        tokens = SRC[row, :length]
        if encoder.reverse:
            tokens = tokens.flip(0)
        outputs, final = encoder.rnn(encoder.embedding(tokens))
        close(states[row, :length], outputs.flip(0) if encoder.reverse else outputs)
        parts = final if isinstance(final, tuple) else (final,)
        directions = 2 if encoder.rnn.bidirectional else 1
        layers = [
            part[d : d + directions].flatten() for d in range(0, len(parts[0]), directions) for part in parts
        ]
        close(summary[row], torch.cat(layers))
    assert states.size(2) == encoder.state_size
    assert summary.size(1) == encoder.summary_size


def test_reversal_turns_round_real_tokens_only() -> None:
    expected = [[2, 1, 0, 3], [0, 1, 2, 3], [3, 2, 1, 0]]
    assert reversal(torch.tensor([3, 1, 4]), 4).tolist() == expected


def test_reversal_changes_a_model_but_not_where_its_weights_stand() -> None:
    """A palindrome reads alike in both directions; any other sentence does not."""
    plain, turned = make("bahdanau"), make("bahdanau", reverse_source=True)
    palindrome = torch.tensor([[1, 4, 7, 4, 1]])
    mask = torch.ones(1, 5, dtype=torch.bool)
    close(turned(palindrome, mask, TGT[:1]), plain(palindrome, mask, TGT[:1]))
    weights = [m.attention(palindrome, mask, TGT[:1])["cross"] for m in (plain, turned)]
    close(weights[1], weights[0].flip(-1))
    assert (turned(SRC, MASK, TGT) - plain(SRC, MASK, TGT)).abs().max() > 1e-3


def test_the_decoder_starts_from_the_bridge() -> None:
    model = make("bahdanau", "lstm2")
    encoded = model.encoder(SRC, MASK)
    state = model.init_state(model.encode(SRC, MASK), beam=3, capacity=9)
    expected = torch.tanh(encoded.summary @ model.decoder.bridge.weight.t() + model.decoder.bridge.bias)
    expected = expected.view(4, 1, 2, 2, 8).expand(-1, 3, -1, -1, -1)  # (B, K, L, (h, c), H)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    assert state.feed.shape == (4, 3, 0)


def test_without_attention_the_decoder_starts_from_the_encoders_last_states() -> None:
    """Nothing may stand between them: what the source says passes here or nowhere."""
    model = make("lstm", "lstm2")
    expected = model.encoder(SRC, MASK).summary.view(4, 1, 2, 2, 8)  # (B, K, L, (h, c), H)
    state = model.init_state(model.encode(SRC, MASK), beam=1, capacity=9)
    close(state.h, expected[..., 0, :])
    close(state.c, expected[..., 1, :])
    assert model.decoder.bridge is None


# --- training-time behaviour ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_in_training_only_and_scales_to_one(kind: str) -> None:
    model = make(kind, dropout=0.5)
    close(model(SRC, MASK, TGT), model(SRC, MASK, TGT))
    model.train()
    assert (model(SRC, MASK, TGT) - model(SRC, MASK, TGT)).abs().max() > 1e-3
    hidden = model.features(SRC, MASK, TGT).hidden
    dropped = (hidden == 0).double().mean()
    assert 0.3 < dropped < 0.7  # 160 draws: five standard deviations are 0.2
    assert hidden.abs().max() > 1  # tanh alone stays below 1: what is left is doubled
    model.output = nn.Identity()
    memory = model.encode(SRC, MASK)
    stepped, _ = model.step(TGT, model.init_state(memory, beam=5, capacity=1), memory)
    assert 0.3 < (stepped == 0).double().mean() < 0.7


def test_dropout_hits_the_embeddings_of_both_sides() -> None:
    """With one layer nothing else in encoder and decoder is random: the readout is dropped after them."""
    model = make("bahdanau", dropout=0.5)
    memory = model.encode(SRC, MASK)
    model.train()
    assert (model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states).abs().max() > 1e-3
    assert (model.decoder(TGT, memory)[0] - model.decoder(TGT, memory)[0]).abs().max() > 1e-3


def test_dropout_stands_between_the_layers_of_the_loop() -> None:
    """Equal rows stay equal without it; the last layer's state, which nothing follows, is never hit."""
    rnn = nn.GRU(2, 4, num_layers=2, dropout=0.5).double()
    x = torch.ones(1, 50, 2, dtype=torch.float64)

    def run() -> list[Tensor]:
        h = [torch.ones(50, 4, dtype=torch.float64) for _ in range(2)]
        Stepwise(rnn, x)(0, x[0, :, :0], h, h[:])
        return h

    rnn.eval()
    assert run()[1].std(0).max() < 1e-12
    rnn.train()
    lower, upper = run()
    assert lower.std(0).max() < 1e-12
    assert upper.std(0).min() > 1e-3
    assert (upper != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_autocast_stays_close_to_float32(kind: str) -> None:
    model = make(kind).float()
    exact = model(SRC, MASK, TGT)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(SRC, MASK, TGT)
        memory = model.encode(SRC, MASK)
        logits, state = model.step(TGT[:, :2], model.init_state(memory, 2, 1), memory)
    assert memory.start.dtype == state.c.dtype == torch.float32
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=0.15)
    torch.testing.assert_close(logits[:, 0].float(), exact[:, 0], rtol=0, atol=0.15)
    rounded.float().logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_first_weights() -> None:
    torch.manual_seed(0)
    model = Seq2Seq(Seq2SeqConfig(embedding_size=6, hidden_size=8, num_layers=2), V, V)
    for rnn, size in ((model.encoder.rnn, 4), (model.decoder.rnn, 8)):
        for name, parameter in rnn.named_parameters():
            for gate, block in enumerate(parameter.split(size)):
                if name.startswith("weight_hh"):
                    torch.testing.assert_close(block @ block.t(), torch.eye(size))
                elif name.startswith("bias"):
                    assert (block == (1 if gate == 1 and name.startswith("bias_ih") else 0)).all()
                else:
                    assert 0 < block.abs().max() <= math.sqrt(6 / sum(block.shape))
    assert 0.05 < model.encoder.embedding.weight.abs().max() <= 0.1
    assert (model.output.bias == 0).all()


# --- tying and configuration ------------------------------------------------------------------------------


def test_tied_weights_are_one_parameter() -> None:
    def weights(tie: str) -> tuple[set[int], int]:
        model = Seq2Seq(Seq2SeqConfig(embedding_size=6, hidden_size=8, tie=tie), V, V)
        three = (model.encoder.embedding.weight, model.decoder.embedding.weight, model.output.weight)
        return {id(weight) for weight in three}, model.output.in_features

    assert len(weights("none")[0]) == 3
    assert weights("none")[1] == 8
    assert len(weights("output")[0]) == 2
    assert weights("output")[1] == 6
    assert len(weights("all")[0]) == 1


def test_tie_all_needs_one_vocabulary() -> None:
    with pytest.raises(ValueError, match=r'tie "all" needs one vocabulary .* 11 source and 12 target'):
        Seq2Seq(Seq2SeqConfig(tie="all"), 11, 12)


def test_dot_needs_states_of_one_size() -> None:
    """A decoder on another room's encoder: 10 wide there, 8 here."""
    with pytest.raises(ValueError, match=r'"dot" needs .* got 8 and 10: use "general"'):
        Decoder(Seq2SeqConfig(attention="dot", hidden_size=8), V, value_size=10, summary_size=10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "addtive"}, "attention must be one of none, additive, .* got 'addtive'"),
        ({"placement": "between"}, "placement must be one of before, after, got 'between'"),
        ({"cell": "rnn"}, "cell must be one of lstm, gru, got 'rnn'"),
        ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
        ({"embedding_size": 0}, "embedding_size must be at least 1, got 0"),
        ({"hidden_size": -2}, "hidden_size must be at least 1, got -2"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        ({"hidden_size": 9}, r"hidden_size \(9\) must be even with bidirectional"),
        (
            {"attention": "none", "placement": "after"},
            'placement "after" means nothing',
        ),
        ({"attention": "none", "input_feeding": True}, 'input_feeding means nothing with attention "none"'),
        ({"input_feeding": True}, 'input_feeding needs placement "after"'),
        ({"attention_size": 0}, "attention_size must be at least 1, got 0"),
        ({"attention": "dot", "attention_size": 4}, 'attention_size means nothing with attention "dot"'),
    ],
)
def test_what_cannot_be_built_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig(**settings)


def test_a_config_is_frozen_and_small() -> None:
    assert len(dataclasses.fields(Seq2SeqConfig)) <= 12
    with pytest.raises(dataclasses.FrozenInstanceError):
        Seq2SeqConfig().dropout = 0.5
    with pytest.raises(TypeError, match="hidden_sise"):
        Seq2SeqConfig(hidden_sise=64)
    assert Seq2SeqConfig(hidden_size=9, bidirectional=False).hidden_size == 9
