"""Studies that train or read models: equal effort, decision rules on hand-made figures, measures of heads."""

import math
import random
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from compare.experiment.likelihood import SentenceScore
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.studies import contrastive, designs, heads, length, positions, training
from compare.studies.contrastive import Group
from compare.studies.study import Settings, judge
from compare.studies.training import TRANSLATORS, embedded_task, valid_loss
from data import Contrast
from data.vocabulary import EOS
from transformer.config import LayerConfig


def trained(*finals: float, curve=(5.0,)) -> training.Trained:
    """A design whose seeds end at ``finals`` after ``curve``."""
    updates = [10 * n for n in range(1, len(curve) + 2)]
    return training.Trained(1e-3, updates, [[*curve, final] for final in finals])


def verdicts(study: str, measured, **words) -> list:
    return [claim.verdict for claim in judge(study, measured, **words)]


# Training with equal effort


@pytest.fixture(scope="module")
def task():
    return embedded_task(3, train=40, valid=6, test=4)


def plan(**changes) -> training.Plan:
    sizes = {"updates": 4, "batch_tokens": 60, "measure_every": 2, "warmup_updates": 0}
    return training.Plan(**{**sizes, "learning_rates": (0.1, 0.2), "seeds": (1, 2), **changes})


def test_each_design_gets_its_own_best_rate(task, monkeypatch):
    """The second seed is trained with the rate that was best for the first."""
    losses = {("a", 0.1): 3.0, ("a", 0.2): 2.0, ("b", 0.1): math.inf, ("b", 0.2): math.inf}
    calls = []

    def train(label, build, task, plan, rate, seed):
        calls.append((label, rate, seed))
        return [9.0, losses[label[-1], rate] + seed], None

    monkeypatch.setattr(training, "train", train)
    found = training.train_designs("s", {"a": None, "b": None}, task, plan())
    assert calls == [(f"s: {x}", *rest) for x, best in (("a", 0.2), ("b", 0.1)) for rest in
                     ((0.1, 1), (0.2, 1), (best, 2))]  # fmt: skip
    assert (found["a"].final, found["a"].updates, found["a"].mean_curve) == ([3, 4], [2, 4], [9, 3.5])


def test_the_weights_of_the_lowest_loss_are_kept(task):
    """A rate that is far too large, after which the first of two measurements is the best."""
    build = training.translator(RECURRENT, 8, 0.0)
    losses, model = training.train(
        "x", build, task, plan(updates=6, measure_every=1, warmup_updates=6), 3.0, 1
    )
    assert len(losses) == 6
    assert min(losses) < losses[-1]
    assert valid_loss(model, task.valid_batch) == min(losses)


def test_losses_and_the_updates_to_reach_one():
    fast = training.Trained(1e-3, [10, 20, 30], [[5.0, 3.0, 1.0], [5.0, 4.0, 4.0]])
    goal = training.Trained(1e-3, [10, 20, 30], [[5.0, 4.0, 3.0], [5.0, 4.0, 3.0]])
    names = [f"{norm}-norm, {warm}" for warm in ("no warm-up", "warm-up") for norm in ("pre", "post")]
    measured = designs.warmup_claims(dict.fromkeys(names, fast) | {"post-norm, warm-up": goal})
    assert measured["cold_faster"] == [2 / 3, math.inf]
    assert designs.losses({"a": fast})["designs"] == [
        {"design": "a", "learning_rate": 1e-3, "final_loss": 2.5, "loss_1": 1.0, "loss_2": 4.0}
    ]


def test_fewer_pairs_are_the_first_of_more(task):
    fewer = embedded_task(3, train=40, valid=6, test=4, keep=15)
    assert (fewer.train_src, len(fewer.train)) == (task.train_src[:15], 15)
    assert fewer.test == task.test
    short = embedded_task(3, train=40, valid=6, test=4, longest=8)
    assert short.train_src == tuple(line for line in task.train_src if len(line.split()) <= 8)


# Decision rules


def test_verdicts_on_warmup():
    def verdict(pre, post, warm_pre, warm_post):
        names = [f"{norm}-norm, {warm}" for warm in ("no warm-up", "warm-up") for norm in ("pre", "post")]
        trainings = dict(zip(names, (pre, post, warm_pre, warm_post), strict=True))
        return verdicts("warmup", designs.warmup_claims(trainings))

    good, bad = trained(2.0, 2.0, curve=(3.0, 2.5)), trained(4.0, math.inf, curve=(5.0, 4.5))
    slow, mixed = trained(2.5, 2.5, curve=(5.0, 4.0)), trained(2.0, 4.0, curve=(3.0, 2.6))
    assert verdict(good, bad, good, slow) == [True] * 5
    assert verdict(bad, good, slow, good) == [False] * 5
    assert verdict(good, mixed, good, slow)[:3] == ["undecided", True, "undecided"]


def test_verdicts_on_the_ablation():
    def verdict(*finals):
        labels = (designs.FULL, designs.NO_NORM, designs.NO_RESIDUAL, designs.NEITHER)
        losses = {label: trained(final, final) for label, final in zip(labels, finals, strict=True)}
        return verdicts("ablation", designs.ablation_claims(losses, 5.0))

    assert verdict(2.0, 3.0, 4.0, 4.95) == [True] * 4
    assert verdict(2.0, 2.05, 1.0, 2.0) == [False] * 4


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_a_sublayer_without_residual_path(norm):
    config = LayerConfig(d_model=4, num_heads=1, dropout=0.0, norm=norm)
    x, sublayer = torch.randn(2, 3, 4), nn.Linear(4, 4)
    inner = nn.functional.layer_norm(x, [4]) if norm == "pre" else x
    expected = nn.functional.layer_norm(sublayer(x), [4]) if norm == "post" else sublayer(inner)
    torch.testing.assert_close(designs.NoResidual(config)(x, sublayer), expected)


def test_the_loss_of_word_frequencies(task):
    size, counts = task.sizes[1], dict.fromkeys(range(task.sizes[1]), 1)
    for row in range(len(task.train)):
        for token in (*task.train.tgt.take(np.array([row])).flat.tolist(), EOS):
            counts[token] += 1
    batch, total = task.valid_batch, sum(counts.values())
    tokens = batch.tgt_out[batch.tgt_mask].tolist()
    assert len(counts) == size
    expected = sum(math.log(total / counts[token]) for token in tokens) / len(tokens)
    assert designs.frequency_loss(task) == pytest.approx(expected, rel=1e-12)


def test_verdicts_on_projections_and_concatenated_positions(monkeypatch):
    def verdict(itself, *finals):
        monkeypatch.setattr(designs, "weight_on_itself", lambda model, _: model)
        labels = (designs.NONE, designs.SEPARATE, designs.SHARED, designs.UNSCALED, designs.WIDER)
        made = {label: trained(final, final) for label, final in zip(labels, finals, strict=True)}
        made[designs.NONE] = made[designs.NONE]._replace(models=(itself, itself))
        made[designs.SEPARATE] = made[designs.SEPARATE]._replace(models=(1 - itself, 1 - itself))
        return verdicts("projections", designs.projection_claims(made, None))

    assert verdict(0.9, 2.2, 2.0, 2.05, 2.4, 2.15) == [True] * 6
    assert verdict(0.1, 2.05, 2.0, 2.2, 2.1, 2.05) == [False] * 6

    def concatenated(*finals):
        kinds = ("sinusoidal", "concat", "learned", "concat-learned")
        made = {kind: trained(final, final) for kind, final in zip(kinds, finals, strict=True)}
        return verdicts("concatenation", designs.concatenation_claims(made, None))

    assert concatenated(2.0, 1.9, 2.0, 1.9) == [True] * 3
    assert concatenated(2.0, 2.0, 1.9, 1.9) == [False] * 3


def test_the_weight_of_a_token_on_itself(task):
    mask = task.valid_batch.src_mask
    uniform = (mask.unsqueeze(1) / mask.sum(1)[:, None, None]).expand(-1, mask.size(1), -1)
    layers = {
        "encoder.1": torch.eye(mask.size(1)).expand(len(mask), 1, -1, -1),
        "encoder.2": uniform[:, None],
    }
    model = SimpleNamespace(encoder=SimpleNamespace(attention=lambda src, mask: layers))
    # Each sentence of n tokens has n weights of 1 / n.
    expected = (1 + len(mask) / int(mask.sum())) / 2
    assert designs.weight_on_itself(model, task) == pytest.approx(expected)


def test_verdicts_on_depth():
    def verdict(transformer, recurrent):
        by_name = {
            designs.name(family, layers): trained(final, final)
            for family, finals in zip(designs.FAMILIES, (transformer, recurrent), strict=True)
            for layers, final in zip((1, 2, 4), finals, strict=True)
        }
        return verdicts("depth", designs.depth_claims(by_name, (1, 2, 4)), first=1, last=4)

    assert verdict((3.0, 2.5, 2.0), (3.0, 2.0, 2.9)) == [True] * 4
    assert verdict((3.0, 2.5, 2.95), (3.0, 2.0, 1.5)) == [False] * 4


def test_verdicts_on_positions():
    def verdict(good: float, bad: float, within: float):
        copying = positions.Copying(4, 1, 1, 1, [6])
        past = {f"{kind}_past": good if kind in positions.CARRIES_OVER else bad for kind in positions.KINDS}
        rows = [{"length": length, **dict.fromkeys(positions.KINDS, within), **past} for length in (4, 6)]
        return verdicts("positions", positions.position_claims([rows] * 2, copying), **copying.words)

    assert verdict(0.9, 0.5, 0.99) == [True] * 10
    assert verdict(0.89, 0.51, 0.98) == [False] * 10
    rows = [[{"length": 4, "alibi": value}] for value in (0.5, 1.0)]
    assert positions.average(rows) == [{"length": 4, "alibi": 0.75}]


def test_verdicts_on_data_size():
    def verdict(*scores):
        rows = [
            {"model": family, "pairs": pairs, "bleu": bleu + seed}
            for family, of_family in zip(TRANSLATORS, scores, strict=True)
            for pairs, bleu in zip((10, 100), of_family, strict=True)
            for seed in (0, 1)
        ]
        return verdicts("data-size", designs.data_size_claims(rows, (10, 100)), fewest=10, most=100)

    assert verdict((5, 20), (10, 50), (8, 52)) == [True] * 4
    assert verdict((9, 20), (10, 50), (9, 50)) == [False] * 4


# Contrastive pairs


def test_verdicts_on_contrasts():
    def verdict(recurrent, transformer):
        names = ("agreement_near", "agreement_long", "lexical")
        rows = [
            {"model": family, "seed": seed, **dict(zip(names, values, strict=True))}
            for family, values in ((RECURRENT, recurrent), (TRANSFORMER, transformer))
            for seed in (1, 2)
        ]
        return verdicts("contrastive", contrastive.measures(rows))

    assert verdict((90, 80, 70), (90, 82, 72)) == [True] * 4
    assert verdict((74, 70, 70), (60, 80, 71)) == [False] * 4


def test_pairs_are_counted_per_phenomenon_and_distance(monkeypatch, caplog):
    """The stand-in gives a text its number as log-probability; a tie is not right."""

    def score(translator, sources, texts):
        return SimpleNamespace(sentences=[SentenceScore([text], [float(text)]) for text in texts])

    monkeypatch.setattr(contrastive, "score_translations", score)
    pairs = [
        Contrast("agreement", 0, "a", "-1", "-2"),
        Contrast("agreement", 3, "b", "-2", "-1"),
        Contrast("agreement", 4, "c", "-1", "-1.5"),
        Contrast("agreement", 12, "d", "-1", "-1"),
        Contrast("noun", 0, "e", "-1", "-3"),
    ]
    groups = contrastive.measure_contrasts(None, pairs)
    assert groups == [
        Group("agreement", "0", 1, 1),
        Group("agreement", "3-4", 2, 1),
        Group("agreement", "9 or more", 1, 0),
        Group("agreement", "all", 4, 2),
        Group("noun", "all", 1, 1),
    ]
    assert "1 of 5 pairs differ only in words that the vocabulary lacks" in caplog.text  # "d"
    row = contrastive.summarise([*groups, Group("agreement", "5-8", 3, 2)])
    assert (row["agreement_near"], row["agreement_long"], row["lexical"]) == (100, 50, 100)
    assert math.isnan(row["word_order"])


# Heads


def test_verdicts_on_one_and_two_heads():
    def verdict(one: float, two: float):
        rows = [{"heads": heads, "ordered": value} for heads, value in ((1, one), (2, two)) for _ in range(2)]
        return verdicts("heads-average", heads.average_claims(rows), bound_with_errors=0.8)

    assert verdict(0.5, 1.0) == [True] * 3
    assert verdict(0.95, 0.9) == [False] * 3
    found = heads.count_right(torch.tensor([[1, 2], [2, 1], [1, 1]]), torch.tensor([[1, 2]] * 3))
    assert found == {"ordered": pytest.approx(1 / 3), "found": pytest.approx(2 / 3)}


def test_roles_of_a_head():
    """Two sentences, of three tokens and of two; the head of both attends to the token before."""
    weights = torch.zeros(2, 3, 3)
    weights[:, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])] = 1
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = heads.offsets(weights, mask)
    assert (found["previous"], found["previous peak"], found["next"]) == (1, 1, 0)
    assert found["itself"] == pytest.approx(2 / 5)  # of five tokens, the two first ones
    after = torch.tensor([[[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 1, 0], [1, 0, 0], [1, 0, 0]]])
    assert heads.offsets(after, mask)["next"] == 1  # of the tokens that have a next one
    row = heads.concentration(weights, mask, mask, "encoder.0")
    assert row == {"entropy": 0, "distance": pytest.approx(3 / 5)}
    uniform = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]])
    causal = heads.concentration(uniform, mask[:1], mask[:1], "decoder.0")
    assert causal == {"entropy": pytest.approx(1), "distance": pytest.approx((0 + 0.5 + 1) / 3)}


def test_verdicts_on_head_roles():
    def verdict(peak, entropies, gold, untrained_peak=0.3, untrained_gold=0.2, *, has_gold=True):
        rows = []
        for state, top, values, share in (
            ("trained", peak, entropies, gold),
            ("untrained", untrained_peak, (0.9, 0.95), untrained_gold),
        ):
            rows += [
                {"model": state, "seed": 1, "head": "encoder layer 1, head 1", "entropy": value}
                | {"previous peak": share_before, "next peak": 0.1}
                for value, share_before in zip(values, (top, 0.2), strict=True)
            ]
            rows.append(
                {"model": state, "seed": 1, "head": "layer 1, head 1"} | ({"gold": share} if has_gold else {})
            )
        return verdicts("head-roles", heads.role_claims(rows))

    assert verdict(0.95, (0.2, 0.9), 0.6) == [True] * 6
    assert verdict(0.8, (0.8, 0.9), 0.4, 0.6, 0.6) == [False, False, False, False, True, False]
    assert verdict(0.95, (0.2, 0.9), 0.6, has_gold=False) == [True] * 4


def test_an_untrained_model_has_the_same_sizes(task):
    torch.manual_seed(1)
    translator = task.translator(training.translator(TRANSFORMER, 16, 0.1)(*task.sizes))
    fresh = heads.untrained(translator)
    pairs = list(zip(fresh.model.parameters(), translator.model.parameters(), strict=True))
    assert all(one.shape == other.shape for one, other in pairs)
    assert not all(torch.equal(one, other) for one, other in pairs)
    shares = heads.gold_shares(translator, heads._gold(task.test))
    assert shares
    assert all(0 <= share <= 1 for share in shares.values())
    assert heads._gold(task.test._replace(links=())) is None


# Recall, reversed sources


def test_verdicts_on_recall():
    def verdict(near, plain, gated):
        rows = [
            {"length": words, "cell": cell, "recalled": far if words == 80 else near}
            for words in (20, 80)
            for cell, far in (("RNN", plain), ("LSTM", gated), ("GRU", gated))
            for _ in (1, 2)
        ]
        return verdicts("recall", length.recall_claims(rows, 20, 80), longest=20, far=80)

    assert verdict(0.9, 0.5, 0.9) == [True] * 6
    assert verdict(0.89, 0.51, 0.89) == [False] * 6


def test_only_the_first_word_is_to_be_recalled():
    batch = length.first_words([3, 1], random.Random(1))
    assert batch.tgt_mask.tolist() == [[True, False], [True, False]]
    assert batch.tgt_out[:, 0].tolist() == batch.src[:, 0].tolist()
    assert batch.src_lengths.tolist() == [4, 2]


def test_sentences_are_bucketed_by_their_words():
    lines = ["a " * n for n in (4, 5, 6, 7, 8, 12, 40)]
    assert length.by_length(lines) == {"4-5": [0, 1], "6-7": [2, 3], "8": [4], "12": [5], "40": [6]}


def test_verdicts_on_reversal():
    def verdict(*scores):
        names = (length.FORWARD, length.REVERSED, RECURRENT)
        rows = [
            {"model": name, "all": a, "5": b, "20": c} for name, (a, b, c) in zip(names, scores, strict=True)
        ]
        return verdicts("reversal", length.measures(*rows))

    assert verdict((10, 20, 5), (15, 20, 8), (20, 25, 20)) == [True] * 4
    assert verdict((10, 20, 15), (9, 20, 10), (10, 20, 15)) == [False] * 4


# Finished experiments: that of the tests has an LSTM with attention and a Transformer, and words of its own


def test_a_finished_experiment_is_measured(finished):
    settings = Settings(seed=1, quick=True, runs=finished)
    found = contrastive.run(settings)
    assert {row["model"] for row in found.tables["accuracy"].rows} == {RECURRENT, TRANSFORMER}
    assert finished.name in found.method
    rows = heads.roles(settings).tables["heads"].rows
    names = [f"{side}layer 1, head {head}" for side in ("encoder ", "decoder ", "") for head in (1, 2)]
    assert [row["head"] for row in rows if row["model"] == "trained"] == names
    assert all("gold" not in row and 0 <= row["entropy"] <= 1 for row in rows)


def test_an_experiment_without_the_families_is_an_error(copy):
    shutil.rmtree(copy / "transformer-seed1")
    settings = Settings(seed=1, quick=True, runs=copy)
    for study in (contrastive.run, heads.roles):
        with pytest.raises(ValueError, match="has no Transformer: needs"):
            study(settings)
