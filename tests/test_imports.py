"""Which package may import which: the table in CONTRIBUTING.md, checked against every import statement."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.kits.paths import ROOT

PACKAGES = {
    "data": {"data"},
    "seq2seq": {"seq2seq"},
    "transformer": {"transformer"},
    "compare": {"compare", "data", "seq2seq", "transformer"},
}
"""Packages of this project that each package may import."""

ORDER = (
    "protocol",
    "formulas",
    "system",
    "optim",
    "models",
    "config",
    "attention",
    "decoding",
    "scoring",
    "training",
    "results",
    "experiment",
    "analysis",
    "report",
    "benchmark",
    "studies",
    "check",
    "integrations",
    "cli",
    "__main__",
)
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


def test_the_graph_is_read_right():
    assert len(FILES) > 50
    assert {"compare.training.checkpoints", "data.batches", "torch"} <= GRAPH["compare.training.trainer"]
    assert {"seq2seq.attention", "seq2seq.stack"} <= GRAPH["seq2seq.decoder"]  # relative imports
    assert "data.grammar.lexicon" in GRAPH["data.grammar.sampling"]  # from . import lexicon
    assert "data.grammar" in GRAPH["data.corpus"]  # inside a function
    assert "seq2seq.model" in GRAPH["compare.models.registry"]


@pytest.mark.parametrize("module", FILES)
def test_a_package_imports_only_what_it_may(module: str):
    allowed = PACKAGES[module.split(".")[0]]
    imported = {name.split(".")[0] for name in GRAPH[module]}
    assert imported & PACKAGES.keys() <= allowed
    assert "tests" not in imported


def part_of_compare(module: str) -> str:
    """The part of ``compare`` that ``module`` belongs to: "training" for compare.training.trainer."""
    return module.split(".")[1]


@pytest.mark.parametrize("module", [module for module in FILES if module.startswith("compare.")])
def test_the_parts_of_compare_import_downwards(module: str):
    height = ORDER.index(part_of_compare(module))
    imported = {name for name in GRAPH[module] if name.startswith("compare.")}
    upwards = {name for name in imported if ORDER.index(part_of_compare(name)) > height}
    assert not upwards


def test_every_part_of_compare_has_its_place_in_the_order():
    parts = {
        path.stem for path in (ROOT / "compare").iterdir() if not path.name.startswith(("__init__", "__pyc"))
    }
    assert parts - {"py"} == set(ORDER)


def test_no_module_imports_itself_by_a_detour():
    graph = {module: names & FILES.keys() - {module} for module, names in GRAPH.items()}
    assert set(TopologicalSorter(graph).static_order()) == FILES.keys()


def test_only_data_knows_torchtext():
    users = {
        module.split(".")[0]
        for module, names in GRAPH.items()
        if any(n.startswith("torchtext") for n in names)
    }
    assert users == {"data"}


def test_models_do_not_know_the_batch():
    """Tensors and masks in, logits out: the models need nothing but torch and the standard library."""
    for module, names in GRAPH.items():
        if (package := module.split(".")[0]) in ("seq2seq", "transformer"):
            imported = {name.split(".")[0] for name in names}
            assert imported - sys.stdlib_module_names <= {package, "torch"}, module


def part(module: str, package: str) -> bool:
    """Whether ``module`` is ``package`` or a module in it."""
    return f"{module}.".startswith(f"{package}.")


def test_nothing_but_the_entry_point_imports_the_command_line():
    users = {module for module, names in GRAPH.items() if any(part(name, "compare.cli") for name in names)}
    assert {module for module in users if not part(module, "compare.cli")} == {"compare.__main__"}


def python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_starts_without_anything_heavy(tmp_path: Path):
    loaded = set(python("import sys, compare.cli; print(*sys.modules)", tmp_path).split())
    heavy = {
        "torch",
        "pandas",
        "sacrebleu",
        "matplotlib",
        "numpy",
        "torchtext",
        "sentencepiece",
        "safetensors",
    }
    assert "compare.cli" in loaded
    assert not loaded & heavy
    assert all(part(name, "compare.cli") for name in loaded if name.startswith("compare."))


def test_listing_the_presets_needs_little(tmp_path: Path):
    code = "import sys; from compare.cli import main; main(['models']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "bahdanau" in done.stdout
    assert not set(done.stderr.split()) & {"pandas", "sacrebleu", "matplotlib"}


def test_a_plain_folder_called_data_hides_nothing(tmp_path: Path):
    """Many people have a data/ where they work; the installed packages must win over it."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "notes.txt").touch()
    code = (
        "import data.vocabulary, compare.config.sections, seq2seq.config, transformer.config;"
        "print(data.vocabulary.__file__)"
    )
    assert Path(python(code, tmp_path).strip()).name == "vocabulary.py"


def test_a_package_of_the_users_own_is_named(tmp_path: Path):
    """A data.py in the folder where Python starts hides our package: the error names it and the remedy."""
    for name in ("data.py", "seq2seq/__init__.py"):
        folder = tmp_path / name[:4]
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x = 1\n")
        code = "from compare import load_model"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert str(folder / name) in last
        assert "rename that file, or start Python in another folder" in last
