"""benchmarks/words.py finds what breaks the rules for words, and nothing else."""

import runpy

import pytest

from tests.kits.common import ROOT

WORDS = runpy.run_path(str(ROOT / "benchmarks" / "words.py"))
LONG = "word " * 31
CODE = {
    "x = 1  # which nobody reads": ["comment"],
    "x = 1  # the reason": [],
    'def f():\n    """What it does."""\n    return 1\n': ["docstring-start"],
    'def _f():\n    """Return one.\n\n    It is\n    one.\n    """\n    return 1\n': ["docstring-length"],
    'def f():\n    """Return one.\n\n    It is\n    one.\n    """\n    return 1\n': [],
    "found, hypotheses = 1, 2\n": ["name"],
    "def f(known):\n    return known\n": ["name"],
    "x = found\n": [],
    f"raise ValueError(f'{'word ' * 24}{{value}} word')\n": ["message"],
    f"raise ValueError('{'word ' * 20}. {'word ' * 20}')\n": [],
}
PAGES = {
    f"{LONG}.\n": ["page-sentence"],
    f"- {LONG}.\n- one\n": ["page-sentence"],
    f"{'word ' * 20}. {'word ' * 20}.\n": [],
    f"    {LONG}\n| {LONG} |\n```\n{LONG}\n```\n<!-- table: x -->\n{LONG}\n<!-- end -->\n": [],
    "one (two (three))\n": ["page-parentheses"],
    "one (two `f(3)`, [four](five.md))\n": [],
}


@pytest.mark.parametrize(("source", "rules"), CODE.items())
def test_rules_for_code(source: str, rules: list[str]):
    assert [rule for rule, _, _ in WORDS["check_code"](source)] == rules


@pytest.mark.parametrize(("text", "rules"), PAGES.items())
def test_rules_for_pages(text: str, rules: list[str]):
    assert [rule for rule, _, _ in WORDS["check_page"](text)] == rules
