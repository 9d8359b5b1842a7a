"""Studies of cost: operations, bytes and parameters of attention, and sequential products."""

import torch

from compare.studies import complexity, parallel
from tests.kits.studies import QUICK, claims, rows

# 1 complexity


def test_operations_and_bytes_equal_the_formulas(reports):
    d, h, m = complexity.D, complexity.HEADS, complexity.CROSS_KEYS
    by_shape = {(row["attention"], row["n"]): row for row in rows(reports("complexity"), "attention")}
    for n in (16, 32, 64):
        single, narrow, wide = (by_shape[kind, n] for kind in list(complexity.KINDS)[:3])
        assert single["operations"] == narrow["operations"] == 2 * n * n * d
        assert wide["operations"] == h * 2 * n * n * d
        assert single["bytes"] == 4 * (3 * n * d + n * n)
        assert narrow["bytes"] == 4 * (3 * n * d + h * n * n)
        assert wide["bytes"] == 4 * h * (3 * n * d + n * n)
        assert by_shape[f"cross, M = {m}", n]["operations"] == 2 * n * m * d
        assert by_shape["decoder self", n]["operations"] == 2 * n * n * d
        assert by_shape["encoder self, 1 head, d_v = d/4", n]["operations"] == n * n * (d + d // 4)


def test_a_second_language_costs_only_a_decoder(reports):
    """By hand, for the smallest source: 2 layers, k = 64, inner 256, M = 20, N = 40."""
    row = rows(reports("complexity"), "second-language")[0]
    feed_forward, k, m, n = 2 * 64 * 256, 64, 20, 40
    assert row["encoder"] == 2 * (4 * m * k * k + 2 * m * m * k + m * feed_forward)
    self_attention = 4 * n * k * k + 2 * n * n * k
    cross = 2 * n * k * k + 2 * m * k * k + 2 * m * n * k
    assert row["second_language"] == 2 * (self_attention + cross + n * feed_forward)


def test_parameters_and_crossing(reports):
    d = complexity.D
    weights = rows(reports("complexity"), "parameters")
    assert [(row["weights"], row["with_W_O"]) for row in weights[:4]] == 4 * [(3 * d * d, 4 * d * d)]
    assert (weights[4]["weights"], weights[4]["with_W_O"]) == (4 * 3 * d * d, 4 * 4 * d * d)
    verdict = claims(reports("complexity").findings.claims)
    assert all(holds for text, holds in verdict.items() if "time" not in text)
    assert any("N = 2d" in text for text in verdict)


def test_a_kernel_with_extra_operations_is_detected(monkeypatch):
    plain = complexity.plain_attention

    def wasteful(queries, keys, values, *rest):
        return plain(queries, keys, values @ torch.eye(values.size(-1)), *rest)

    monkeypatch.setattr(complexity, "plain_attention", wasteful)
    measured = [
        {"attention": "x", "n": n, **complexity.measure(complexity.AttentionShape(n, n, 1, 8, 8), quick=True)}
        for n in (4, 8)
    ]
    row = complexity.fit("x", measured)
    assert measured[1]["operations"] == measured[1]["operations_predicted"] + 8 * 8 * 8
    assert row["operations_exponent"] < 1.9


# 5 parallel


def test_the_longest_path_counts_sequential_products():
    a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    assert parallel.longest_path(a @ b) == 1
    assert parallel.longest_path((a @ b).tanh() @ b + a @ b) == 2
    assert parallel.longest_path(torch.cat([a @ b, b @ a]) @ b) == 2
    assert parallel.longest_path(a + b) == 0
    assert parallel.longest_path(torch.addmm(b, a @ b, a)) == 2
    x = a
    for _ in range(2_000):  # two paths at each node: counted once each, without recursion
        x = (x + x) @ b
    assert parallel.longest_path(x) == 2_000


def test_serial_steps(reports, monkeypatch):
    plain, attention, transformer = rows(reports("parallel"), "steps")
    assert plain["per_position"] == 2
    assert attention["per_position"] > 2
    assert transformer["per_position"] == 0
    assert (
        transformer["n = 4"] >= 6 * 4
    )  # 4 + 2 x 2 layers, of projections, scores, contexts and feed-forward
    verdict = claims(reports("parallel").findings.claims)
    assert all(holds for text, holds in verdict.items() if "time" not in text)
    monkeypatch.setattr(parallel, "PRODUCTS", ("NoSuchNode",))
    verdict = claims(parallel.run(QUICK).claims)
    assert not any(holds for text, holds in verdict.items() if text.startswith("LSTM"))
