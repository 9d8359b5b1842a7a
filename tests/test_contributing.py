"""CONTRIBUTING.md says all that is to be done: each recipe, followed to the letter in a copy, works."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import WORDS
from tests.kits.http_server import Server, plain
from tests.kits.paths import ROOT
from tests.kits.recipes import apply, changes, copy_tree, python, sections
from tests.test_imports import ORDER

pytestmark = pytest.mark.slow

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = sections(TEXT)
CONTRACT = """
import sys
import torch
from tests.kits.contract import EXACT, make, sharpen, sources, stepped, targets
from compare.models.registry import forward_flops
from compare.models.presets import PRESETS
from torch.utils.flop_counter import FlopCounterMode

assert PRESETS["deep-averaging"].departures
torch.set_default_dtype(torch.float64)
model = make("deep-averaging").eval()
sharpen(model)
(src, mask), tgt_in = sources(), targets()
full = model(src, mask, tgt_in)
torch.testing.assert_close(stepped(model, src, mask, tgt_in[:, None])[:, 0], full, **EXACT)
wide, wide_mask = sources(width=9)
torch.testing.assert_close(model(wide, wide_mask, tgt_in), full, **EXACT)
torch.testing.assert_close(model(src[:1], mask[:1], tgt_in[:1]), full[:1], **EXACT)
with FlopCounterMode(display=False) as counter:
    model(src, mask, tgt_in)
sizes = {"src_len": src.size(1), "tgt_len": tgt_in.size(1), "tgt_vocabulary": full.size(2)}
assert counter.get_total_flops() == len(src) * forward_flops(model.config, **sizes)
"""
FORMULA = """
import torch
from tests.kits.attention import CASES
from tests.seq2seq import test_attention
torch.set_default_dtype(torch.float64)
assert "cosine" in CASES
for scope in ("global", "local-m", "local-p"):
    test_attention.test_attention_equals_its_formula("cosine", scope, "softmax")
test_attention.test_attention_equals_its_formula("cosine", "global", "reinforce")
"""
FLOPS = """
from compare.models.registry import forward_flops
from tests.compare.models.test_flops import SIZES, B, counted, recurrent
from seq2seq.config import AttentionConfig
config = recurrent(AttentionConfig(score="cosine"))
assert B * forward_flops(config, **SIZES) == counted(config)[0]
"""


@pytest.fixture
def follow(tmp_path: Path) -> Callable[[str], Path]:
    """Follows the recipe of that title in a copy of the tree, and lets ruff do what the page says it does."""

    def follow_recipe(title: str) -> Path:
        tree = copy_tree(tmp_path / "tree")
        for change in changes(RECIPES[title]):
            apply(change, tree)
        python(tree, "-m", "ruff", "check", "--fix", "--quiet", ".")
        python(tree, "-m", "ruff", "format", "--quiet", ".")
        return tree

    return follow_recipe


def attnbench(tree: Path, *commands: str) -> str:
    """Run commands of the copy in one process and return what they print."""
    code = "import sys; from compare.cli import main; sys.exit(any([main(c.split()) for c in sys.argv[1:]]))"
    return python(tree, "-c", code, *commands)


def quick_run(tree: Path, tiny_toml: Path, settings: str = "", further_models: str = "") -> str:
    """Write the tiny experiment with its first model alone; returns the command that runs it into "out"."""
    head, first, _ = tiny_toml.read_text().split("[[models]]")
    (tree / "quick.toml").write_text(f"{head}[[models]]{first}{settings}{further_models}")
    return "run quick.toml --out out --quiet --set train.max_updates=12 --set train.valid_every=6"


def test_there_are_seven_recipes_and_few_edits():
    assert len(RECIPES) == 7
    edited = {title: {c.path for c in changes(text) if c.action} for title, text in RECIPES.items()}
    assert max(map(len, edited.values())) <= 3
    assert sum(map(len, edited.values())) / len(edited) <= 2


def test_the_parts_of_compare_are_listed_in_import_order():
    assert tuple(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == ORDER[:-1]


def test_a_score(follow: Callable[[str], Path], tiny_toml: Path):
    tree = follow("A new attention score")
    for folder in ("tests/seq2seq", "tests/compare/models"):
        shutil.copytree(ROOT / folder, tree / folder)
    python(tree, "-c", FORMULA + FLOPS)
    attnbench(tree, quick_run(tree, tiny_toml, 'score = "cosine"\nscope = "local-p"\n'))
    (result,) = map(json.loads, (tree / "out" / "results.jsonl").read_text().splitlines())
    assert result["status"] == "done"
    assert result["updates"] == 12
    assert result["train_flops_per_token"] > 0


def test_a_model(follow: Callable[[str], Path], tiny_toml: Path):
    tree = follow("A new model")
    python(tree, "-c", CONTRACT)
    model = '[[models]]\npreset = "deep-averaging"\nhidden_size = 24\n'
    command = quick_run(tree, tiny_toml, further_models=model)
    budget = " --set budget.match=params --set budget.amount=60000"
    assert "deep-averaging  " in attnbench(tree, command + budget, "models")
    results = [json.loads(line) for line in (tree / "out" / "results.jsonl").read_text().splitlines()]
    assert [result["status"] for result in results] == ["done", "done"]
    assert [result["params"] for result in results] == pytest.approx([60_000, 60_000], rel=0.02)


def test_a_metric(follow: Callable[[str], Path], tiny_toml: Path):
    tree = follow("A new metric")
    for name, lines in (("hyp", "a\nb c\n"), ("ref", "a\nb d\n")):
        (tree / name).write_text(lines)
    score = "score hyp --ref ref -m exact_match --json"
    printed = attnbench(tree, score, quick_run(tree, tiny_toml), "check out")
    assert json.JSONDecoder().raw_decode(printed)[0]["exact_match"] == 50
    assert " 0 differ" in printed
    result = json.loads((tree / "out" / "luong-seed1" / "result.json").read_text())
    assert 0 <= result["scores"]["exact_match"] <= 100
    assert "   exact |" in (tree / "out" / "table.md").read_text()


def test_a_column(follow: Callable[[str], Path], tiny_toml: Path):
    tree = follow("A new result column")
    printed = attnbench(tree, quick_run(tree, tiny_toml), "table out --form csv", "check out")
    result = json.loads((tree / "out" / "luong-seed1" / "result.json").read_text())
    assert result["tokens_per_param"] == result["tokens_seen"] / result["params"]
    assert "tokens per parameter |" in (tree / "out" / "table.md").read_text()
    assert f",{result['tokens_per_param']}" in printed
    assert "tokens_per_param" in printed
    assert " 0 differ" in printed


def test_a_study(follow: Callable[[str], Path]):
    tree = follow("A new study")
    report = json.loads(attnbench(tree, "study offsets --quiet --json"))
    assert [claim["holds"] for claim in report["claims"]] == [True]
    files = {path.name for path in (tree / "runs" / "studies" / "offsets").iterdir()}
    assert files == {"study.md", "study.json", "offsets.csv", "plot.png", "plot.svg"}


def test_a_corpus(follow: Callable[[str], Path], server: Server):
    tree = follow("A new named corpus")
    module = tree / "data" / "proverbs.py"
    text = module.read_text()
    assert "https://example.org/proverbs" in text
    rng = random.Random(3)
    lines = [rng.choices(list(WORDS), k=6) for _ in range(400)]
    texts = {"en": lines, "de": [[WORDS[word] for word in line] for line in lines]}
    for language, sentences in texts.items():
        content = "".join(" ".join(words) + "\n" for words in sentences).encode()
        address = server.at(f"/proverbs.{language}", plain, content)
    module.write_text(text.replace("https://example.org/proverbs", address.removesuffix("/proverbs.de")))
    printed = attnbench(tree, "data list", "data get proverbs --quiet")
    assert "proverbs: proverbs with" in printed
    folder = tree / printed.splitlines()[-1]
    counts = {path.name: len(path.read_text().splitlines()) for path in folder.glob("*.en")}
    assert counts.keys() == {"train.en", "valid.en", "test.en"}
    assert 300 < counts["train.en"] < 400


def test_a_command(follow: Callable[[str], Path], finished: Path):
    tree = follow("A new command")
    assert "Print the model with the highest mean BLEU." in attnbench(tree, "--help")
    text, encoded = attnbench(tree, f"best {finished}", f"best {finished} --json").splitlines()
    best = json.loads(encoded)
    assert text == f"{best['label']}  BLEU {best['bleu']:.1f}"
    results = [json.loads(line) for line in (finished / "results.jsonl").read_text().splitlines()]
    assert best["bleu"] == max(result["bleu"] for result in results)
