"""Studies that train: equal effort, decision rules on hand-made figures, measures of trained models."""

import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from compare.config.resolve import resolve_models
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.experiment.likelihood import SentenceScore
from compare.models.hybrid import LadderConfig, NoResidual
from compare.models.registry import build
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.results.store import read_results
from compare.studies import contrastive, corpora, designs, experiments, heads
from compare.studies.study import STUDIES, Settings, describe, judge
from data import Contrast
from data.corpus import Pairs
from data.grammar import embedded_splits
from data.vocabulary import EOS, build_pair
from seq2seq.config import Seq2SeqConfig
from transformer.config import LayerConfig, TransformerConfig


def settings(name: str, folder: Path, **changes) -> Settings:
    return Settings(**{"name": name, "folder": folder, "seed": 1, "quick": True, "runs": None, **changes})


# Training with equal effort


@pytest.fixture
def tiny_study(monkeypatch):
    """A study of two designs, of which one suits the higher rate and the other diverges with it."""
    description = {
        "labels": {"small": "a small one"},
        "corpus": {"kind": "copies", "symbols": 3, "longest": 4, "train": 60, "valid": 5},
        "experiment": {
            "train": {"max_updates": 4, "valid_every": 3, "batch_tokens": 60},
            "common": {"preset": "lstm", "embedding_size": 8, "hidden_size": 8, "warmup_updates": 0},
            "models": [
                {"label": "small", "learning_rate": [1e-6, 0.01]},
                {"label": "wild", "learning_rate": [0.01, 1e6]},
            ],
        },
    }
    monkeypatch.setattr(experiments, "describe", lambda name: description)


@pytest.mark.usefixtures("tiny_study")
def test_each_design_gets_its_own_best_rate(tmp_path):
    """The second seed is trained with the rate that was best for the first."""
    trained = experiments.train(settings("x", tmp_path, quick=False))
    assert trained.seeds == [1, 2, 3]
    assert {label: design.rows[0]["learning_rate"] for label, design in trained.designs.items()} == {
        "small": 0.01,
        "wild": 0.01,
    }
    runs = sorted(result.run for result in read_results(trained.folder))
    assert runs == sorted(
        [f"{label}-learning_rate-0.01-seed{seed}" for label in ("small", "wild") for seed in (1, 2, 3)]
        + ["small-learning_rate-1e-06-seed1", "wild-learning_rate-1000000.0-seed1"]
    )
    small = trained.designs["small"]
    assert (small.name, small.updates) == ("a small one", [3, 4])
    assert small.final == [curve[1] for curve in small.curves]
    assert small.final == [result.valid_loss for result in small.results]
    assert trained.words["plan"].startswith("4 updates of at most 60 target tokens in fp32, Adam at a peak ")
    assert (
        "rate of 1e-06 or 0.01 or 1e+06, chosen per design by the first of 3 seeds" in trained.words["plan"]
    )
    again = experiments.train(settings("x", tmp_path, quick=False))
    assert again.rows == trained.rows


def test_a_training_that_diverges_has_an_infinite_loss(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "valid", "update": 2, "loss": 3.5, "bleu": 0}\n')
    config = SimpleNamespace(train=SimpleNamespace(valid_every=2, max_updates=5))
    run = SimpleNamespace(metrics=tmp_path / "metrics.jsonl", run=config)
    design = experiments.Design(name="x", runs=[run], results=[])
    assert design.updates == [2, 4, 5]
    assert (design.curves, design.final) == ([[3.5, math.inf, math.inf]], [math.inf])
    (tmp_path / "metrics.jsonl").unlink()  # it diverged before the first line
    assert experiments.Design(name="x", runs=[run], results=[]).final == [math.inf]


def test_fewer_pairs_are_the_first_of_more_and_short_ones_are_kept():
    draws = {"train": 60, "valid": 10}
    every = corpora.sentences(3, longest=8, draws=draws)
    fewer = corpora.sentences(3, longest=8, draws=draws, pairs=5)
    drawn = embedded_splits(seed=3, train=60, valid=10, test=1, test_long=1)["train"]
    assert every["train"] == [(src, tgt) for src, tgt, *_ in drawn if len(src.split()) <= 8]
    assert (fewer["train"], fewer["valid"]) == (every["train"][:5], every["valid"])
    with pytest.raises(ValueError, match="training pairs are left: draw more"):
        corpora.sentences(3, longest=8, draws=draws, pairs=50)


def test_sequences_are_copied_or_answered_by_their_first_word():
    sizes = {"symbols": 4, "longest": 5, "train": 30, "valid": 3}
    for src, tgt in corpora.copies(1, **sizes)["train"]:
        assert src == tgt
        assert 1 <= len(src.split()) <= 5
        assert set(src.split()) <= {"a", "b", "c", "d"}
    answered = corpora.first_words(1, **sizes, test=2, lengths=[3, 9])
    assert all(tgt == src.split()[0] for pairs in answered.values() for src, tgt in pairs)
    assert [len(src.split()) for src, _ in answered["test_9"]] == [9, 9]


SIZES_OF_PAIRS = {"keys": 6, "values": 4, "longest": 5, "train": 30, "valid": 3, "test": 8, "lengths": [2, 5]}


def test_each_key_is_asked_once_for_its_value():
    splits = corpora.key_values(1, **SIZES_OF_PAIRS)
    assert [len(splits[name]) for name in ("train", "valid", "test_2", "test_5")] == [30, 3, 8, 8]
    for name, texts in splits.items():
        for src, tgt in texts:
            words = tgt.split()
            pairs = len(words) // 3
            assert (src, len(words)) == ("x", 3 * pairs)
            assert pairs == designs.length_of(name) if name.startswith("test") else 1 <= pairs <= 5
            answers = [key + value for key, value in zip(words[pairs::2], words[pairs + 1 :: 2], strict=True)]
            assert sorted(answers) == sorted(set(words[:pairs]))
            assert len(set(words[pairs::2])) == pairs


def test_the_numbers_that_a_decoder_remembers_of_five_words():
    linear = {"encoder_mixer": "gated-linear", "decoder_mixer": "gated-linear", "positions": "none"}
    for config, numbers in (
        (Seq2SeqConfig(attention=None, hidden_size=8), 2 * 8),
        (Seq2SeqConfig(attention=None, hidden_size=8, cell="min-gru"), 8),
        (LadderConfig(d_model=8, num_heads=2, **linear), 2 * 4 * 4),
        (TransformerConfig(d_model=8), 5 * 2 * 8),
    ):
        assert designs.state_size(config, 5) == numbers


class LastPair(nn.Module):
    """A model that always answers with the value of the last pair."""

    output = nn.Identity()

    def __init__(self, vocabulary):
        super().__init__()
        labels = vocabulary.pieces(range(len(vocabulary)))
        self.values = torch.tensor([vocabulary.encode(f"v{label.rpartition('v')[2]}")[0] for label in labels])

    def features(self, src, src_mask, tgt_in):
        named = self.values[tgt_in[:, tgt_in.size(1) // 3]].unsqueeze(1).expand(tgt_in.shape)
        return SimpleNamespace(hidden=nn.functional.one_hot(named, len(self.values)))


def test_only_values_after_keys_are_scored():
    pairs = Pairs(*zip(*corpora.key_values(1, **SIZES_OF_PAIRS)["test_5"], strict=True))
    vocabularies = build_pair(pairs, kind="words", size=99, joint=False)
    stand_in = SimpleNamespace(vocabularies=vocabularies, model=LastPair(vocabularies.tgt))
    texts = [text.split() for text in pairs.tgt]
    right = sum(words[6::2].count(words[4][2:]) for words in texts)
    assert designs.answered(stand_in, pairs, 5) == pytest.approx(right / (5 * len(texts)))


# Decision rules: series for which all claims hold, and series for which none does


def series(study: str, *values: float, names: str) -> dict[str, list[float]]:
    return {name: [value] * 2 for name, value in zip(names.split(), values, strict=True)}


CONTRASTS = (
    "agreement_near-LSTM-with-attention agreement_near-Transformer agreement_long-LSTM-with-attention "
    "agreement_long-Transformer lexical-LSTM-with-attention lexical-Transformer"
)
ROLES = "positional positional_untrained spread spread_untrained aligning aligning_untrained"
DEPTHS = "transformer-1 transformer-8 transformer-best lstm-1 lstm-8 lstm-best"
RECALLED = "attention-test_16 gated-linear-test_16 RNN-test_8 LSTM-test_8 minGRU-test_8"
SIZES = "lstm-few bahdanau-few transformer-few bahdanau-many transformer-many"
KINDS = "sinusoidal learned rotary relative alibi"
POSITIONS = f"{KINDS} sinusoidal_past learned_past rotary_past relative_past alibi_past"
WARMUP = "pre-cold pre-warm post-cold post-warm cold_faster warm_faster"


@pytest.mark.parametrize(
    ("study", "names", "good", "bad"),
    [
        ("warmup", WARMUP, (2, 2, 4, 2.5, 0.5, 0.5), (4, 2.5, 2, 2, 0.9, math.inf)),
        ("ablation", "both no-norm no-residual neither frequencies", (2, 3, 4, 4.95, 5), (2, 2.05, 1, 2, 5)),
        (
            "projections",
            "none separate shared unscaled wider itself others",
            (2.2, 2, 2.05, 2.4, 2.15, 0.9, 0.1),
            (2.05, 2, 2.2, 2.1, 2, 0.1, 0.9),
        ),
        ("concatenation", "sinusoidal concat learned concat-learned", (2, 1.9, 2, 1.9), (2, 2, 1.9, 1.9)),
        ("depth", DEPTHS, (3, 2, 2.5, 3, 2.9, 2), (3, 2.95, 2.5, 3, 1.5, 2)),
        ("data-size", SIZES, (5, 10, 8, 50, 52), (9, 10, 9, 50, 50)),
        ("recall", "RNN-test_20 LSTM-test_20 GRU-test_20 RNN-test_80 LSTM-test_80 GRU-test_80",
         (0.9, 0.9, 0.9, 0.5, 0.9, 0.9), (0.89, 0.89, 0.89, 0.51, 0.89, 0.89)),
        ("recall-key-values", RECALLED, (0.9, 0.9, 0.5, 0.5, 0.5), (0.89, 0.89, 0.51, 0.51, 0.51)),
        ("positions", POSITIONS, (*(0.99,) * 5, *(0.5,) * 2, *(0.9,) * 3),
         (*(0.98,) * 5, *(0.51,) * 2, *(0.89,) * 3)),
        ("contrastive", CONTRASTS, (90, 90, 80, 82, 70, 72), (74, 60, 70, 80, 70, 71)),
        ("head-roles", ROLES, (0.95, 0.3, 0.7, 0.05, 0.6, 0.2), (0.8, 0.6, 0.1, 0.3, 0.4, 0.6)),
        ("heads-average", "1 2", (0.5, 1.0), (0.95, 0.9)),
    ],
)  # fmt: skip
def test_verdicts(study, names, good, bad):
    words = {"bound_with_errors": 0.8, "fewest": 10, "most": 100}
    for values, expected in ((good, True), (bad, False)):
        claims = judge(study, series(study, *values, names=names), **words)
        assert [claim.verdict for claim in claims] == [expected] * len(claims)
        assert {claim.text for claim in claims}
        assert len(claims) >= len(describe(study)["claims"])


def test_seeds_that_disagree_leave_a_claim_undecided():
    both = {"1": [0.5, 0.9], "2": [1.0, 1.0]}
    verdicts = [claim.verdict for claim in judge("heads-average", both, bound_with_errors=0.8)]
    assert verdicts == ["undecided", True, "undecided"]
    assert [claim.text[:5] for claim in judge("head-roles", {"spread": [0.3]})] == [
        "Train"
    ]  # no gold: left out


@pytest.mark.parametrize("name", [name for name in STUDIES if "experiment" in describe(name)])
def test_every_experiment_can_be_run(name, tmp_path, monkeypatch):
    def resolve(experiment, *_, **options):
        raise InterruptedError(len(resolve_models(experiment)))

    monkeypatch.setattr(experiments, "run_experiment", resolve)
    with pytest.raises(InterruptedError, match=f"^{len(describe(name)['experiment']['models'])}$"):
        experiments.train(settings(name, tmp_path))


# Measures


def test_the_share_of_training_to_reach_a_loss():
    assert designs.share_to_reach(3.0, [5.0, 3.0, 1.0]) == 2 / 3
    assert designs.share_to_reach(3.0, [5.0, 4.0, 4.0]) == math.inf


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_a_sublayer_without_residual_path(norm):
    config = LayerConfig(d_model=4, num_heads=1, dropout=0.0, norm=norm)
    x, sublayer = torch.randn(2, 3, 4), nn.Linear(4, 4)
    inner = nn.functional.layer_norm(x, [4]) if norm == "pre" else x
    expected = nn.functional.layer_norm(sublayer(x), [4]) if norm == "post" else sublayer(inner)
    torch.testing.assert_close(NoResidual(config)(x, sublayer), expected)


def test_attention_to_the_source_can_lack_its_residual_path():
    sizes = {"d_model": 8, "num_heads": 1, "ffn_size": 8, "encoder_layers": 1, "decoder_layers": 1}
    for residual in (True, False):
        model = build(LadderConfig(**sizes, residual=False, cross_residual=residual), 9, 9)
        layer = model.decoder.layers[0]
        assert [isinstance(part, NoResidual) for part in (layer.around_attention, layer.around_cross)] == [
            True,
            not residual,
        ]


def test_the_loss_of_word_frequencies():
    train, valid, size = [[4, 5], [4]], [[4], [6]], 7
    counts = {0: 1, 1: 1, 2: 1, 3: 1, 4: 3, 5: 2, 6: 1}
    counts[EOS] += 2
    total = sum(counts.values())
    expected = sum(math.log(total / counts[token]) for token in (4, EOS, 6, EOS)) / 4
    assert designs.frequency_loss(train, valid, size=size) == pytest.approx(expected, rel=1e-12)


@pytest.fixture(scope="module")
def translator():
    """A fresh Transformer with the words of a small corpus, and its test pairs with gold links."""
    drawn = embedded_splits(seed=3, train=40, valid=1, test=4, test_long=1)
    train, test = (Pairs(*zip(*drawn[name], strict=True)) for name in ("train", "test"))
    vocabularies = build_pair(train, kind="words", size=4_000, joint=False)
    torch.manual_seed(1)
    model = build(TransformerConfig(d_model=16, ffn_size=16), len(vocabularies.src), len(vocabularies.tgt))
    device = torch.device("cpu")
    return SimpleNamespace(
        translator=Translator(model, vocabularies, DecodeConfig(batch_tokens=4_096), device), test=test
    )


def test_the_weight_of_a_token_on_itself(translator, monkeypatch):
    made = translator.translator
    mask = experiments.batch_of(made, translator.test).src_mask
    uniform = (mask.unsqueeze(1) / mask.sum(1)[:, None, None]).expand(-1, mask.size(1), -1)
    layers = {
        "encoder.1": torch.eye(mask.size(1)).expand(len(mask), 1, -1, -1),
        "encoder.2": uniform[:, None],
    }
    model = SimpleNamespace(encoder=SimpleNamespace(attention=lambda src, mask: layers))
    stand_in = SimpleNamespace(vocabularies=made.vocabularies, model=model)
    # Each sentence of n tokens has n weights of 1 / n.
    expected = (1 + len(mask) / int(mask.sum())) / 2
    assert designs.weight_on_itself(stand_in, translator.test) == pytest.approx(expected)


def test_pairs_are_counted_per_phenomenon_and_distance(monkeypatch, caplog):
    """The stand-in gives a text its number as log-probability; a tie is not right."""

    def score(translator, sources, texts):
        return SimpleNamespace(sentences=[SentenceScore([text], [float(text)]) for text in texts])

    monkeypatch.setattr(contrastive, "force_decode", score)
    pairs = [
        Contrast("agreement", 0, "a", "-1", "-2"),
        Contrast("agreement", 3, "b", "-2", "-1"),
        Contrast("agreement", 4, "c", "-1", "-1.5"),
        Contrast("agreement", 12, "d", "-1", "-1"),
        Contrast("noun", 0, "e", "-1", "-3"),
    ]
    hits = contrastive.passes(None, pairs)
    assert hits == [True, False, True, False, True]
    assert "1 of 5 pairs differ only in words that the vocabulary lacks" in caplog.text  # "d"
    assert contrastive.groups_of(pairs) == [
        ("agreement", "0"),
        ("agreement", "3-4"),
        ("agreement", "9 or more"),
        ("agreement", ""),
        ("noun", ""),
    ]
    assert contrastive.accuracy(pairs, hits, ["agreement"], ()) == 50
    assert contrastive.accuracy(pairs, hits, ["agreement"], ["3-4"]) == 50
    assert contrastive.accuracy(pairs, hits, ["noun", "verb"], ()) == 100
    assert math.isnan(contrastive.accuracy(pairs, hits, ["verb last"], ()))


def test_symbols_named_by_one_head_or_two():
    shares = heads.count_right(torch.tensor([[1, 2], [2, 1], [1, 1]]), torch.tensor([[1, 2]] * 3))
    assert shares == {"ordered": pytest.approx(1 / 3), "found": pytest.approx(2 / 3)}


def test_roles_of_a_head():
    """Two sentences, of three tokens and of two; the head of both attends to the token before."""
    weights = torch.zeros(2, 3, 3)
    weights[:, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])] = 1
    mask = torch.tensor([[True, True, True], [True, True, False]])
    shares = heads.offsets(weights, mask)
    assert (shares["previous"], shares["previous peak"], shares["next"]) == (1, 1, 0)
    assert shares["itself"] == pytest.approx(2 / 5)  # two of five tokens are first ones
    after = torch.tensor([[[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 1, 0], [1, 0, 0], [1, 0, 0]]])
    assert heads.offsets(after, mask)["next"] == 1  # those without a next token do not count
    row = heads.concentration(weights, mask, mask, "encoder.0")
    assert row == {"entropy": 0, "distance": pytest.approx(3 / 5)}
    uniform = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]])
    causal = heads.concentration(uniform, mask[:1], mask[:1], "decoder.0")
    assert causal == {"entropy": pytest.approx(1), "distance": pytest.approx((0 + 0.5 + 1) / 3)}


def test_figures_of_heads_by_seed():
    rows = [
        {"model": state, "seed": 1, "head": "encoder layer 1, head 1", "entropy": entropy}
        | {"previous peak": peak, "next peak": 0.1}
        for state in ("trained", "untrained")
        for entropy, peak in ((0.2, 0.95), (0.9, 0.2))
    ]
    measured = heads.role_series(rows)
    assert (measured["positional"], measured["spread"]) == ([0.95], [pytest.approx(0.7)])
    assert "aligning" not in measured
    rows.append({"model": "trained", "seed": 1, "head": "layer 1, head 1", "gold": 0.6})
    assert heads.role_series(rows)["aligning"] == [0.6]


def test_an_untrained_model_has_the_same_sizes(translator):
    fresh = heads.untrained(translator.translator)
    pairs = list(zip(fresh.model.parameters(), translator.translator.model.parameters(), strict=True))
    assert all(one.shape == other.shape for one, other in pairs)
    assert not all(torch.equal(one, other) for one, other in pairs)
    shares = heads.gold_shares(translator.translator, heads._gold(translator.test))
    assert shares
    assert all(0 <= share <= 1 for share in shares.values())
    assert heads._gold(translator.test._replace(links=())) is None


# Finished experiments: that of the tests has an LSTM with attention and a Transformer, and words of its own


def test_a_finished_experiment_is_measured(finished, tmp_path):
    contrasts = contrastive.run(settings("contrastive", tmp_path, runs=finished))
    assert {row["model"] for row in contrasts.tables["accuracy"].rows} == {RECURRENT, TRANSFORMER}
    assert finished.name in contrasts.method
    rows = heads.roles(settings("head-roles", tmp_path, runs=finished)).tables["heads"].rows
    names = [f"{side}layer 1, head {head}" for side in ("encoder ", "decoder ", "") for head in (1, 2)]
    assert [row["head"] for row in rows if row["model"] == "trained"] == names
    assert all("gold" not in row and 0 <= row["entropy"] <= 1 for row in rows)


def test_an_experiment_without_the_families_is_an_error(copy, tmp_path):
    shutil.rmtree(copy / "transformer-seed1")
    for name, study in (("contrastive", contrastive.run), ("head-roles", heads.roles)):
        with pytest.raises(ValueError, match="has no Transformer: needs"):
            study(settings(name, tmp_path, runs=copy))
