"""Who may import whom: the table of the plan, read off the imports themselves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "data": {"data"},
    "seq2seq": {"seq2seq"},
    "transformer": {"transformer"},
    "compare": {"compare", "data", "seq2seq", "transformer"},
}
"""Which of our packages each may import."""

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}
"""Every module of ours, by its dotted name."""

SPINE = (
    "protocol config",
    "models objective search score flops results run_folder",
    "train",
    "derive execute",
    "budget",
    "run",
    "cli",
)
"""The layers of compare, from the lowest; a module imports nothing of a higher layer."""


def imports(module: str) -> Iterator[str]:
    """The modules that ``module`` imports, inside functions too; what only type checkers read is left out."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield name if name in FILES else base
        pending.extend(ast.iter_child_nodes(node))


GRAPH = {module: set(imports(module)) for module in FILES}


def reachable(module: str) -> set[str]:
    """All modules of ours that ``module`` needs, at whatever depth."""
    found, pending = set(), [module]
    while pending:
        for name in GRAPH[pending.pop()] & FILES.keys():
            if name not in found:
                found.add(name)
                pending.append(name)
    return found


def test_the_graph_is_read_right():
    assert len(FILES) > 50
    assert {"compare.checkpoint", "data.loader", "torch"} <= GRAPH["compare.train"]
    assert {"seq2seq.attention", "seq2seq.stack"} <= GRAPH["seq2seq.decoder"]  # relative ones
    assert "data.grammar.lexicon" in GRAPH["data.grammar.sampling"]  # from . import lexicon
    assert "data.grammar" in GRAPH["data.corpus"]  # inside a function
    assert "seq2seq.model" in GRAPH["compare.models"]


@pytest.mark.parametrize("module", FILES)
def test_a_room_imports_only_what_it_may(module: str):
    allowed = ROOMS[module.split(".")[0]]
    found = {name.split(".")[0] for name in GRAPH[module]}
    assert found & ROOMS.keys() <= allowed
    assert "tests" not in found


def test_only_data_knows_torchtext():
    users = {
        module.split(".")[0]
        for module, names in GRAPH.items()
        if any(n.startswith("torchtext") for n in names)
    }
    assert users == {"data"}


def test_models_do_not_know_the_batch():
    """Tensors and masks in, logits out: neither room needs more than torch and the standard library."""
    for module, names in GRAPH.items():
        if (room := module.split(".")[0]) in ("seq2seq", "transformer"):
            assert {name.split(".")[0] for name in names} - sys.stdlib_module_names <= {room, "torch"}, module


def test_no_module_imports_itself_by_a_detour():
    order = list(
        TopologicalSorter({module: names & FILES.keys() for module, names in GRAPH.items()}).static_order()
    )
    assert set(order) == FILES.keys()


def part(module: str, package: str) -> bool:
    """Whether ``module`` is ``package`` or a module in it."""
    return f"{module}.".startswith(f"{package}.")


def test_nothing_but_the_entry_point_imports_the_command_line():
    users = {module for module, names in GRAPH.items() if any(part(name, "compare.cli") for name in names)}
    assert {module for module in users if not part(module, "compare.cli")} == {"compare.__main__"}


def test_the_spine_imports_downwards():
    layers = [{f"compare.{name}" for name in layer.split()} for layer in SPINE]
    for height, layer in enumerate(layers):
        above = set().union(*layers[height + 1 :])
        for module in layer:
            assert module in FILES
            assert not reachable(module) & above, module


def test_views_look_at_results_and_train_nothing():
    for module in (name for name in FILES if name.startswith("compare.views.")):
        assert not GRAPH[module] & {"compare.train", "compare.run", "compare.execute", "compare.cli"}, module


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
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "notes.txt").touch()
    code = "import data.words, compare.config, seq2seq.config, transformer.config; print(data.words.__file__)"
    assert Path(python(code, tmp_path).strip()).name == "words.py"
