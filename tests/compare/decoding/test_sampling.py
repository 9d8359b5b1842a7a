"""Sampling: frequencies, filters and scores against the formulas; independence of neighbours; commands."""

import io
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from compare import Sampling, load_model
from compare.cli import main
from compare.decoding.sampling import draw
from compare.decoding.translator import generate
from tests.kits.common import Refusal
from tests.kits.search import BOS, EOS, PAD, SENTENCES, TableModel, inputs, random_limits, random_model, same

LINES = ["dog", "old cat sees small red tree", "", "cat tree", "dog"]


def samples(model: TableModel, limits: list[int], rows=None, width=1, number=1, **options):
    return generate(model, **inputs(limits, rows, width), n_best=number, sampling=Sampling(**options))


def expected(logp: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """The distribution by the papers' definitions, with lists."""
    weights = [math.exp(value / temperature) for value in logp]
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    order = order[: top_k or len(order)]
    total, nucleus, mass = sum(weights[token] for token in order), [], 0.0
    for token in order:
        if mass < top_p:
            nucleus.append(token)
        mass += weights[token] / total
    total = sum(weights[token] for token in nucleus)
    return [weights[token] / total if token in nucleus else 0.0 for token in range(len(weights))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.6), (4, 0.7), (1, 1.0), (0, 1e-9)])
def test_evenly_spaced_draws_give_the_distribution(temperature: float, top_k: int, top_p: float):
    generator = torch.Generator().manual_seed(3)
    logp = torch.randn(2, 3, 9, generator=generator, dtype=torch.float64).log_softmax(2)
    logp[:, :, 4] = logp[:, :, 2]  # a tie
    logp[:, :, 0] = -math.inf
    size = 2000
    uniforms = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    uniforms = uniforms.unsqueeze(1).expand(size, 3)
    drawn = [draw(logp[row].expand(size, 3, 9), uniforms, sampling) for row in range(2)]
    for row, k in itertools.product(range(2), range(3)):
        counts = Counter(drawn[row][:, k].tolist())
        wanted = expected(logp[row, k].tolist(), temperature, top_k, top_p)
        for token, share in enumerate(wanted):
            assert abs(counts[token] / size - share) <= 1.01 / size


def test_the_score_is_the_models_own_log_probability():
    model, limits = random_model(), random_limits()
    hypotheses = samples(model, limits, number=3, temperature=1.7, top_k=5)
    for row, several in enumerate(hypotheses):
        for tokens, score in several:
            assert {PAD, BOS, EOS}.isdisjoint(tokens)
            assert len(tokens) <= limits[row]
            logp = sum(model.logp(row, tokens[:t])[token] for t, token in enumerate([*tokens, EOS]))
            assert score == pytest.approx(logp, abs=1e-10)


def test_neighbours_padding_and_the_number_of_samples_change_nothing():
    """TableModel's sources are different, so none is a repeat."""
    model, limits = random_model(), random_limits()
    together = samples(model, limits, number=3, seed=5)
    for row in range(0, SENTENCES, 5):
        (alone,) = samples(model, [limits[row]], [row], width=3, number=2, seed=5)
        same(alone, together[row][:2])
    assert samples(model, limits, number=3, seed=5) == together
    assert samples(model, limits, number=3, seed=6) != together


def test_equal_sources_get_different_samples():
    model = random_model()
    first, second = samples(model, [12, 12], [3, 3], number=4)
    assert [hypothesis.tokens for hypothesis in first] != [hypothesis.tokens for hypothesis in second]
    assert len({tuple(hypothesis.tokens) for hypothesis in first}) > 1
    (alone,) = samples(model, [12], [3], number=4)
    same(alone, first)


def test_a_value_out_of_range_is_refused():
    for name, value in (("temperature", 0.0), ("temperature", math.nan), ("top_k", -1), ("top_p", 1.1)):
        with pytest.raises(ValueError, match=name):
            Sampling(**{name: value})


def test_options_of_search_and_logits_that_are_nan_are_refused():
    model = random_model()
    with pytest.raises(ValueError, match="n_best must be at least 1, found 0"):
        generate(model, **inputs([3], [0]), n_best=0, sampling=Sampling())
    with pytest.raises(ValueError, match="no beam_size"):
        generate(model, **inputs([3], [0]), beam_size=2, sampling=Sampling())
    model.table[0] = math.nan
    with pytest.raises(ValueError, match="scores are NaN"):
        samples(model, [3], [0])


def test_text_by_search_and_by_sampling(finished: Path):
    translator = load_model(finished / "luong-seed1")
    translator.model.double()  # scores of another batch are rounded otherwise
    searched = translator.generate(LINES, beam_size=4, n_best=3)
    assert [several[0].text for several in searched] == translator.translate(LINES, beam_size=4)
    assert [len(several) for several in searched] == [3, 3, 1, 3, 3]
    drawn = translator.generate(LINES, n_best=2, sampling=Sampling(temperature=3.0))
    for options, together in (
        ({"beam_size": 4, "n_best": 3}, searched),
        ({"n_best": 2, "sampling": Sampling(temperature=3.0)}, drawn),
    ):
        (alone,) = translator.generate([LINES[1]], **options)
        assert alone == [t._replace(score=pytest.approx(t.score, abs=1e-10)) for t in together[1]]
    assert drawn[0] != drawn[4]
    assert translator.generate([], n_best=2) == []
    for options, message in (
        ({"n_best": 3}, r"n_best must be from 1 to beam_size \(2\)"),
        ({"beam_size": 2, "sampling": Sampling()}, "sampling has no beam_size"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.generate(LINES, **options)
    for lines in ("dog", ["dog", None]):
        with pytest.raises(ValueError, match="expected a list of strings"):
            translator.generate(lines)


def test_the_command(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refusal: Refusal
):
    run = str(finished / "luong-seed1")
    translator = load_model(run)

    def output(*options: str) -> str:
        content = "".join(line + "\n" for line in LINES).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        assert main(["translate", run, *options]) == 0
        return capsys.readouterr().out

    expected = translator.generate(LINES, beam_size=3, n_best=2)
    shown = output("--beam", "3", "--n-best", "2").splitlines()
    assert shown == [
        f"{n} ||| {text} ||| {score:.6f}" for n, several in enumerate(expected) for text, score, *_ in several
    ]
    records = json.loads(output("--beam", "3", "--n-best", "2", "--json"))
    assert [record["source"] for record in records] == LINES
    assert records[1]["translations"] == [{"text": t.text, "score": t.score} for t in expected[1]]
    sampling = Sampling(temperature=2.0, top_k=6, top_p=0.95, seed=4)
    drawn = translator.generate(LINES, n_best=1, sampling=sampling)
    options = ["--temperature", "2", "--top-k", "6", "--top-p", "0.95", "--seed", "4"]
    assert output("--sample", "1", *options).splitlines() == [several[0].text for several in drawn]
    assert output().splitlines() == translator.translate(LINES)
    assert "--top-k has no effect on search" in refusal("translate", run, "--top-k", "3")
    assert "leave one of them out" in refusal("translate", run, "--sample", "2", "--beam", "3")
