"""Imports between packages: every import statement obeys the order in the table of CONTRIBUTING.md."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from compare.results.store import Result, save_result
from tests.kits.common import ROOT

PACKAGES = {
    "data": {"data"},
    "seq2seq": {"seq2seq"},
    "transformer": {"transformer"},
    "compare": {"compare", "data", "seq2seq", "transformer"},
}
"""Packages of this project that each package may import."""

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ORDER = (*re.findall(r"^\| `(\w+)` \|", CONTRIBUTING, re.MULTILINE), "__main__")
"""The parts of ``compare``, lowest first; each may import only itself and those before it."""

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
"""All modules of this project, by dotted name."""


def imports(module: str) -> Iterator[str]:
    """The modules that ``module`` imports, inside functions and under TYPE_CHECKING too."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield name if name in FILES else base


GRAPH = {module: set(imports(module)) for module in FILES}


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_what_it_may(module: str):
    """Other packages that its own may import, and parts of ``compare`` before its own."""
    package = module.split(".")[0]
    imported = {name.split(".")[0] for name in GRAPH[module]}
    assert imported & PACKAGES.keys() <= PACKAGES[package]
    assert "tests" not in imported
    if package in ("seq2seq", "transformer"):  # tensors and masks in, logits out
        of_files = {"numpy"} if module == "transformer.masks" else set()  # masks of .npy files
        assert imported - sys.stdlib_module_names <= {package, "torch"} | of_files
    if module.endswith(".formulas"):  # read and copied one by one
        assert imported <= {"collections", "math", "torch"}
    if package != "data":
        assert "torchtext" not in imported
    if module.startswith("compare."):
        height = ORDER.index(module.split(".")[1])
        parts = {name.split(".")[1] for name in GRAPH[module] if name.startswith("compare.")}
        assert {part for part in parts if ORDER.index(part) > height} == set()


def test_every_part_of_compare_has_its_place_in_the_order():
    parts = {
        path.stem for path in (ROOT / "compare").iterdir() if not path.name.startswith(("__init__", "__pyc"))
    }
    assert parts - {"py"} == set(ORDER)


def test_no_module_imports_itself_by_a_detour():
    graph = {module: names & FILES.keys() - {module} for module, names in GRAPH.items()}
    assert set(TopologicalSorter(graph).static_order()) == FILES.keys()


def python(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


LISTING = "import compare, data, compare.cli; compare.cli.main(['run', '--list'])"
RESULTS = "import compare.report.result_table, compare.results.store, compare.scoring, compare.system.doctor"
STUDIES = "from compare.studies.study import STUDIES; print(*STUDIES, sep='\\n')"
HEAVY = {"pandas", "sacrebleu", "matplotlib", "torchtext", "sentencepiece"}


@pytest.mark.parametrize(
    ("code", "printed", "unloaded"),
    [
        (LISTING, {"demo"}, HEAVY | {"torch", "numpy", "safetensors"}),
        (f"{LISTING}; compare.cli.main(['models'])", {"bahdanau"}, HEAVY | {"torch"}),
        (RESULTS, set(), {"pandas", "sacrebleu", "torch"}),
        (
            f"{RESULTS}; print(compare.report.result_table.render_table(compare.load_results('.')))",
            {"|"},
            {"torch"},
        ),
        (STUDIES, {"complexity", "norm"}, {"torch", "pandas", "matplotlib", "numpy"}),
    ],
)
def test_starting_listing_and_looking_load_little(
    code: str, printed: set[str], unloaded: set[str], tmp_path: Path
):
    save_result(tmp_path / "lstm-seed1", Result(label="lstm", preset="lstm", seed=1, status="done"))
    *lines, modules = python(f"{code}; import sys; print(*sys.modules)", tmp_path).stdout.splitlines()
    assert printed <= {line.partition(" ")[0] for line in lines}
    assert not unloaded & set(modules.split())


def test_folders_of_the_user_hide_nothing_or_are_named(tmp_path: Path):
    """Many people have a data/ where they work; a data.py there hides our package: the error says so."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "notes.txt").touch()
    assert python("import data.vocabulary, compare, seq2seq.config", tmp_path).returncode == 0
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "data.py").write_text("x = 1\n")
    done = python("from compare import load_model", tmp_path / "own")
    last = done.stderr.splitlines()[-1]
    assert str(tmp_path / "own" / "data.py") in last
    assert "rename that file, or start Python in another folder" in last
