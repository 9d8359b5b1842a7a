"""The public API: complete, lazy, and visible to tab completion and type checkers."""

import ast
import subprocess
import sys
from importlib import import_module, metadata

import pytest

import compare
from compare.cli import main
from tests.kits.paths import ROOT


def test_every_public_name_is_there_and_listed():
    assert set(compare.__all__) <= set(dir(compare))
    assert set(compare.__all__) - {"__version__"} == set(compare._MODULES)
    for name, module in compare._MODULES.items():
        assert getattr(compare, name) is getattr(import_module(module), name)


def test_type_checkers_see_the_same_names():
    (block,) = (
        node
        for node in ast.parse((ROOT / "compare" / "__init__.py").read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = {(alias.name, node.module) for node in block.body for alias in node.names}  # type: ignore[attr-defined]
    assert imports == set(compare._MODULES.items())


def test_importing_it_needs_nothing_heavy():
    code = "import compare, sys; print({'torch', 'pandas', 'numpy', 'sacrebleu'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'compare' has no attribute 'load_modle'"):
        _ = compare.load_modle


def test_the_version(capsys: pytest.CaptureFixture[str]):
    assert compare.__version__ == metadata.version("attnbench")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"attnbench {compare.__version__}\n"


@pytest.mark.parametrize("package", ["compare", "data", "seq2seq", "transformer"])
def test_every_package_tells_type_checkers_that_it_is_typed(package: str):
    assert (ROOT / package / "py.typed").is_file()
