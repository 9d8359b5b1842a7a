"""Studies that train designs: equal effort, decision rules on hand-made measurements, measures of heads."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from compare.studies import (
    ablation,
    contrastive,
    data_size,
    depth,
    designs,
    head_roles,
    heads_average,
    positions,
    study_report,
    warmup,
)
from compare.studies.contrastive import ContrastAccuracy
from compare.studies.study import StudyResult, at_least, at_most
from compare.studies.tasks import (
    PLAIN,
    RECURRENT,
    TRANSFORMER,
    build_translator,
    embedded_task,
    family_of,
    valid_loss,
)
from data.symbols import EOS
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from transformer.config import LayerConfig, TransformerConfig
from transformer.layers import Residual


def trained(*finals: float, curve=(5.0,)) -> designs.Trained:
    """A design whose seeds end at ``finals`` after ``curve``."""
    updates = [10 * n for n in range(1, len(curve) + 2)]
    return designs.Trained(1e-3, updates, [[*curve, final] for final in finals])


def verdicts(claims) -> list:
    return [claim.verdict for claim in claims]


# Claims over seeds


def test_a_claim_over_seeds_is_undecided_if_they_disagree():
    assert [at_least("", values, 2).verdict for values in ([2, 3], [1, 3], [1, 0])] == [
        True,
        "undecided",
        False,
    ]
    claim = at_most("", (1.0, 2.0, 6.0), 3)
    assert (claim.measured, claim.holds, claim.measurement) == (3.0, False, "3 (1 to 6)")
    assert at_most("", [math.nan, 1], 3).verdict == "undecided"


def test_a_report_counts_undecided_claims():
    result = StudyResult(
        method="", tables={}, claims=[at_least("a", [1, 3], 2), at_least("b", 3, 2)], figure=None
    )
    report = study_report.StudyReport(name="n", about="", source="", findings=result, conditions={})
    assert "## Verdict: 1 of 2 claims hold, 1 undecided" in report.to_markdown()
    assert [row["holds"] for row in report.verdict] == ["undecided", True]
    assert (
        '"by_seed": [\n        1.0,\n        3.0\n      ],\n      "verdict": "undecided"' in report.to_json()
    )


# Training with equal effort


@pytest.fixture(scope="module")
def task():
    return embedded_task(3, train=40, valid=6, test=4)


def test_each_design_gets_its_own_best_rate(task, monkeypatch):
    """The second seed is trained with the rate that was best for the first."""
    losses = {("a", 0.1): 3.0, ("a", 0.2): 2.0, ("b", 0.1): math.inf, ("b", 0.2): math.inf}
    calls = []

    def train(label, design, task, plan, rate, seed):
        calls.append((label, rate, seed))
        return [9.0, losses[label[-1], rate] + seed], None

    monkeypatch.setattr(designs, "train", train)
    plan = designs.Plan(updates=4, batch_tokens=9, measure_every=2, learning_rates=(0.1, 0.2), seeds=(1, 2))
    design = designs.Design(build=None, warmup_updates=0)
    found = designs.train_designs("s", {"a": design, "b": design}, task, plan)
    assert calls == [(f"s: {x}", *rest) for x, best in (("a", 0.2), ("b", 0.1)) for rest in
                     ((0.1, 1), (0.2, 1), (best, 2))]  # fmt: skip
    assert found["a"].final == [3.0, 4.0]
    assert found["a"].updates == [2, 4]
    assert found["a"].mean_curve == [9.0, 3.5]


def test_the_weights_of_the_lowest_loss_are_kept(task):
    """A rate that is far too large, after which the first of two measurements is the best."""
    plan = designs.Plan(updates=6, batch_tokens=60, measure_every=1, learning_rates=(3.0,), seeds=(1,))
    design = designs.Design(
        build=lambda *sizes: build_translator(RECURRENT, 8, 0.0, *sizes), warmup_updates=6
    )
    losses, model = designs.train("x", design, task, plan, 3.0, 1)
    assert len(losses) == 6
    assert min(losses) < losses[-1]
    assert valid_loss(model, task.valid_batch) == min(losses)


def test_updates_until_a_loss():
    design = designs.Trained(1e-3, [10, 20, 30], [[5.0, 3.0, 1.0], [5.0, 4.0, 4.0]])
    assert design.updates_until([3.0, 3.0]) == [20, math.inf]
    assert design.row() == {"learning_rate": 1e-3, "final_loss": 2.5, "loss_1": 1.0, "loss_2": 4.0}


def test_fewer_pairs_are_the_first_of_more(task):
    fewer = embedded_task(3, train=40, valid=6, test=4, keep=15)
    assert fewer.train_src == task.train_src[:15]
    assert fewer.test == task.test
    assert len(fewer.train) == 15
    short = embedded_task(3, train=40, valid=6, test=4, longest=8)
    assert short.train_src == tuple(line for line in task.train_src if len(line.split()) <= 8)
    with pytest.raises(ValueError, match="41 training pairs are to be kept, but only 40 fit"):
        embedded_task(3, train=40, keep=41)


# Decision rules


def warmup_verdicts(pre, post, warm_pre, warm_post):
    names = [warmup.name(norm, warm) for warm in (False, True) for norm in ("pre", "post")]
    return verdicts(warmup.judge(dict(zip(names, (pre, post, warm_pre, warm_post), strict=True))))


def test_verdicts_on_warmup():
    good, bad = trained(2.0, 2.0, curve=(3.0, 2.5)), trained(4.0, math.inf, curve=(5.0, 4.5))
    slow = trained(2.5, 2.5, curve=(5.0, 4.0))
    assert warmup_verdicts(good, bad, good, slow) == [True] * 5
    assert warmup_verdicts(bad, good, slow, good) == [False, False, False, False, False]
    mixed = trained(2.0, 4.0, curve=(3.0, 2.6))
    assert warmup_verdicts(good, mixed, good, slow)[:3] == ["undecided", True, "undecided"]


def test_verdicts_on_the_ablation():
    def verdict(*finals):
        labels = (ablation.FULL, ablation.NO_NORM, ablation.NO_RESIDUAL, ablation.NEITHER)
        losses = {label: trained(final, final) for label, final in zip(labels, finals, strict=True)}
        return verdicts(ablation.judge(losses, 5.0))

    assert verdict(2.0, 3.0, 4.0, 4.95) == [True] * 4
    assert verdict(2.0, 2.05, 1.0, 2.0) == [False] * 4


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_a_sublayer_without_residual_path(norm):
    config = LayerConfig(d_model=4, num_heads=1, dropout=0.0, norm=norm)
    x, sublayer = torch.randn(2, 3, 4), nn.Linear(4, 4)
    inner = nn.functional.layer_norm(x, [4]) if norm == "pre" else x
    expected = nn.functional.layer_norm(sublayer(x), [4]) if norm == "post" else sublayer(inner)
    torch.testing.assert_close(ablation.NoResidual(config)(x, sublayer), expected)
    assert isinstance(ablation.NoResidual(config), Residual)


def test_the_loss_of_word_frequencies(task):
    counts = {token: 1.0 for token in range(task.sizes[1])}
    for token in [*task.train.tgt.flat.tolist(), *[EOS] * 40]:
        counts[token] += 1
    batch, total = task.valid_batch, sum(counts.values())
    tokens = batch.tgt_out[batch.tgt_mask].tolist()
    expected = -sum(math.log(counts[token] / total) for token in tokens) / len(tokens)
    assert ablation.frequency_loss(task) == pytest.approx(expected, rel=1e-12)


def test_verdicts_on_depth():
    def verdict(transformer, recurrent):
        losses = zip((1, 2, 4), transformer, recurrent, strict=True)
        by_name = {}
        for layers, *finals in losses:
            for family, final in zip(depth.FAMILIES, finals, strict=True):
                by_name[depth.name(family, layers)] = trained(final, final)
        return verdicts(depth.judge(by_name, (1, 2, 4)))

    assert verdict((3.0, 2.5, 2.0), (3.0, 2.0, 2.9)) == [True] * 4
    assert verdict((3.0, 2.5, 2.95), (3.0, 2.0, 1.5)) == [False] * 4


def test_verdicts_on_positions():
    def verdict(good: float, bad: float, within: float):
        def row(length: int, value: float) -> dict:
            kinds = {kind: within for kind in positions.KINDS}
            past = {
                f"{kind}_past": value if kind in positions.CARRIES_OVER else bad for kind in positions.KINDS
            }
            return {"seed": 1, "length": length, **kinds, **past}

        return verdicts(positions.judge([[row(4, good), row(6, good)]] * 2, 4))

    assert verdict(0.9, 0.5, 0.99) == [True] * 10
    assert verdict(0.89, 0.51, 0.98) == [False] * 10
    rows = [[{"seed": n, "length": 4, "alibi": value}] for n, value in ((1, 0.5), (2, 1.0))]
    assert positions.average(rows) == [{"length": 4, "alibi": 0.75}]


def test_verdicts_on_data_size():
    def verdict(plain, recurrent, transformer):
        rows = [
            {"model": family, "pairs": pairs, "bleu": bleu + seed}
            for family, scores in ((PLAIN, plain), (RECURRENT, recurrent), (TRANSFORMER, transformer))
            for pairs, bleu in zip((10, 100), scores, strict=True)
            for seed in (0, 1)
        ]
        return verdicts(data_size.judge(rows, (10, 100)))

    assert verdict((5, 20), (10, 50), (8, 52)) == [True] * 4
    assert verdict((9, 20), (10, 50), (9, 50)) == [False] * 4


def test_verdicts_on_contrasts():
    def verdict(recurrent, transformer):
        names = ("agreement_near", "agreement_long", "lexical")
        rows = [
            {"model": family, "seed": seed, **dict(zip(names, values, strict=True))}
            for family, values in ((RECURRENT, recurrent), (TRANSFORMER, transformer))
            for seed in (1, 2)
        ]
        return verdicts(contrastive.judge(rows))

    assert verdict((90, 80, 70), (90, 82, 72)) == [True] * 4
    assert verdict((74, 70, 70), (60, 80, 71)) == [False] * 4


def test_accuracies_are_pooled_over_pairs():
    groups = [
        ContrastAccuracy("agreement", "5-8", 10, 5),
        ContrastAccuracy("agreement", "9 or more", 30, 27),
        ContrastAccuracy("agreement", "0", 10, 10),
        ContrastAccuracy("noun", "all", 10, 6),
    ]
    row = contrastive.summarise(groups)
    assert (row["agreement_near"], row["agreement_long"], row["lexical"]) == (100, 80, 60)
    assert math.isnan(row["word_order"])


def test_families_of_finished_models():
    attention = AttentionConfig(score="additive")
    configs = (
        Seq2SeqConfig(attention=None),
        Seq2SeqConfig(attention=attention),
        TransformerConfig(),
        Seq2SeqConfig(attention=attention, cell="gru"),
    )
    assert [family_of(config) for config in configs] == [PLAIN, RECURRENT, TRANSFORMER, None]


# Heads


def test_one_head_is_within_its_bound_by_exhaustive_search():
    """Random linear answers, for all pairs of four symbols: the rest of the proof is in the module."""
    rng = np.random.default_rng(0)
    n, bound = 4, 0.5 + 4 / 12
    best = 0.0
    for _ in range(3_000):
        p, logits = rng.uniform(0.5, 1), rng.normal(size=(2, n, n))
        right = 0
        for a in range(n):
            for b in range(n):
                if a != b:
                    first, second = (p * each[:, a] + (1 - p) * each[:, b] for each in logits)
                    right += int(first.argmax() == a and second.argmax() == b)
        best = max(best, right / (n * (n - 1)))
    assert 0.3 < best <= bound


def test_verdicts_on_heads():
    def verdict(one: float, two: float):
        rows = [{"heads": heads, "ordered": value} for heads, value in ((1, one), (2, two)) for _ in range(2)]
        return verdicts(heads_average.judge(rows))

    assert verdict(0.5, 1.0) == [True] * 3
    assert verdict(0.95, 0.9) == [False] * 3
    named, answers = torch.tensor([[1, 2], [2, 1], [1, 1]]), torch.tensor([[1, 2], [1, 2], [1, 2]])
    assert heads_average.measure(named, answers) == {
        "ordered": pytest.approx(1 / 3),
        "found": pytest.approx(2 / 3),
    }


def test_roles_of_a_head():
    """Two sentences, of three tokens and of two; the head of both attends to the token before."""
    weights = torch.zeros(2, 3, 3)
    weights[:, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])] = 1
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = head_roles.offsets(weights, mask)
    assert (found["previous"], found["previous peak"], found["next"]) == (1, 1, 0)
    assert found["itself"] == pytest.approx(2 / 5)  # of five tokens, the two first ones
    row = head_roles.roles(weights, mask, mask, "encoder.0")
    assert row == {"entropy": 0, "distance": pytest.approx(3 / 5)}
    uniform = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]])
    causal = head_roles.roles(uniform, mask[:1], mask[:1], "decoder.0")
    assert causal["entropy"] == pytest.approx(1)
    assert causal["distance"] == pytest.approx((0 + 0.5 + 1) / 3)


def test_verdicts_on_head_roles():
    def verdict(peak, entropies, gold, untrained_peak=0.3, untrained_gold=0.2):
        rows = []
        for state, top, values, share in (
            ("trained", peak, entropies, gold),
            ("untrained", untrained_peak, (0.9, 0.95), untrained_gold),
        ):
            for number, value in enumerate(values):
                encoder = {"previous peak": top, "next peak": 0.1, "entropy": value}
                rows.append({"model": state, "seed": 1, "head": f"encoder.0 head {number}", **encoder})
            rows.append({"model": state, "seed": 1, "head": "cross.0 head 0", "gold": share})
        return verdicts(head_roles.judge(rows, has_gold=True))

    assert verdict(0.95, (0.2, 0.9), 0.6) == [True] * 6
    assert verdict(0.8, (0.8, 0.9), 0.4, 0.6, 0.6) == [False, False, False, True, False, False]
    assert len(head_roles.judge([{"model": state, "seed": 1, "head": "encoder.0 head 0", "entropy": 0.5,
                                  "previous peak": 0.1, "next peak": 0.1} for state in
                                 ("trained", "untrained")], has_gold=False)) == 4  # fmt: skip


def test_an_untrained_model_has_the_same_sizes(task):
    torch.manual_seed(1)
    translator = task.translator(build_translator(TRANSFORMER, 16, 0.1, *task.sizes))
    fresh = head_roles.untrained(translator)
    assert fresh.model.config == translator.model.config
    pairs = zip(fresh.model.parameters(), translator.model.parameters(), strict=True)
    shapes = [(one.shape, other.shape, torch.equal(one, other)) for one, other in pairs]
    assert all(one == other for one, other, _ in shapes)
    assert not all(same for *_, same in shapes)
    gold = head_roles._gold(task.test)
    shares = head_roles.gold_shares(translator, gold)
    assert all(0 <= share <= 1 for share in shares.values())
    assert gold is not None
    assert head_roles._gold(task.test._replace(links=())) is None


# Finished experiments


def test_a_finished_experiment_is_measured(finished):
    """Its words are others than those of the pairs and the grammar, so the figures mean nothing."""
    method, seeds, accuracies = contrastive.read(finished, per_group=1)
    assert list(seeds) == [1]
    assert finished.name in method
    assert accuracies.keys() == {RECURRENT, TRANSFORMER}
    assert len(contrastive.summarise(accuracies[RECURRENT][0])) == 4
    _, translators, test = head_roles.read(finished, 3)
    assert len(test.src) == 3
    assert list(translators) == [1]
    rows = head_roles.measure(translators[1], test, None)
    assert [row["head"] for row in rows] == [
        f"{side}.0 head {head}" for side in ("encoder", "decoder", "cross") for head in (0, 1)
    ]
    assert all("gold" not in row for row in rows)
    assert all(0 <= row["entropy"] <= 1 for row in rows)
    assert sum(rows[0][name] for name in ("previous", "itself", "next")) < 3


def test_an_experiment_without_the_families_is_an_error(finished, monkeypatch):
    monkeypatch.setattr(contrastive, "runs_by_family", lambda folder: {RECURRENT: {1: None}})
    with pytest.raises(ValueError, match="has no Transformer: needs an LSTM with attention and"):
        contrastive.read(finished, 1)
    monkeypatch.setattr(head_roles, "runs_by_family", lambda folder: {})
    with pytest.raises(ValueError, match="has no finished Transformer"):
        head_roles.read(finished, 1)
