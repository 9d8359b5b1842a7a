"""Every forgery of ``TAMPERS`` is printed by ``attnbench check``, and docs/check.md shows that line."""

from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from tests.kits.forgery import renew_figures, renew_hashes, renew_views
from tests.kits.tamper import Tamper, plain
from tests.kits.tampers import PAGE, TAMPERS, render_page

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda tamper: tamper.name)
def test_a_forgery_is_printed(tamper: Tamper, forged: Path, capsys: pytest.CaptureFixture[str]):
    tamper.apply(forged)
    assert main(["check", str(forged), "-q", "--decode", tamper.decode]) in (1, 2)
    captured = capsys.readouterr()
    printed = [plain(line) for line in (captured.out + captured.err).splitlines()]
    assert tamper.printed in printed


@pytest.mark.parametrize("decode", [0, 3, 10**6])
def test_an_honest_experiment_has_no_difference(decode: int, honest: Path):
    result = check_experiment(honest, decode=decode)
    assert not result.differences
    assert len(result.findings) > 700


def test_the_forger_alone_leaves_no_trace(forged: Path):
    """What the tampers show is found by their own change, not by a slip of the forger."""
    renew_hashes(forged)
    renew_figures(forged)
    renew_views(forged)
    assert not check_experiment(forged, decode=3).differences


def test_the_page_is_written_from_the_list():
    text = PAGE.read_text(encoding="utf-8")
    assert render_page(text) == text
    assert all(f"| {tamper.printed} |" in text for tamper in TAMPERS)
