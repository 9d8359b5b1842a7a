"""The public API: complete, lazy, and visible to tab completion and type checkers."""

import subprocess
import sys
from importlib import import_module, metadata
from types import ModuleType

import pytest

import compare
import data
import seq2seq
import transformer
from compare.cli import main
from compare.models.presets import PRESETS, Preset
from compare.models.registry import family_of
from seq2seq.config import Seq2SeqConfig
from tests.kits.docstrings import undocumented
from tests.kits.paths import ROOT

LAZY = pytest.mark.parametrize("package", [compare, data], ids=["compare", "data"])
PUBLIC = [
    (f"{package.__name__}.{name}", getattr(package, name))
    for package in (compare, data, seq2seq, transformer)
    for name in package.__all__
]


@LAZY
def test_every_public_name_is_there_and_listed(package: ModuleType):
    assert set(package.__all__) <= set(dir(package))
    assert len(package.__all__) == len(set(package.__all__))
    for name, module in package._MODULES.items():
        assert getattr(package, name) is getattr(import_module(module), name)


def test_importing_it_needs_nothing_heavy():
    code = "import compare, data, sys; print({'torch', 'pandas', 'numpy', 'sacrebleu'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


@LAZY
def test_an_unknown_name_is_an_attribute_error(package: ModuleType):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'load_modle'"):
        _ = package.load_modle


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_parameter_and_field_is_documented(name: str, value: object):
    assert list(undocumented(name, value)) == []


class Scale:
    def apply(self, x: int) -> int:
        return x

    def scale(x: int, factor: int) -> int:
        """Scale.

        Args:
            x: a number.
        """
        return x * factor


def test_a_missing_description_is_noticed():
    assert list(undocumented("scale", Scale.scale)) == ["scale: factor"]
    missing = list(undocumented("Scale", Scale))
    assert {"Scale.apply: x", "Scale.apply: no docstring", "Scale: no docstring"} <= set(missing)


PRESET = Preset(about="a test", source="this file", architecture=Seq2SeqConfig())


def test_a_preset_is_registered_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("compare.models.presets.PRESETS", dict(PRESETS))
    compare.register_preset("new", PRESET)
    assert compare.list_presets()[-1] == "new"
    with pytest.raises(ValueError, match="the preset 'new' exists already: choose another name"):
        compare.register_preset("new", PRESET)
    with pytest.raises(ValueError, match="name of a preset must be a non-empty string, found ''"):
        compare.register_preset("", PRESET)
    with pytest.raises(ValueError, match=r"the preset 'other' must be a Preset, found Seq2SeqConfig\("):
        compare.register_preset("other", PRESET.architecture)


def test_a_family_is_registered_once():
    with pytest.raises(ValueError, match="Seq2SeqConfig is registered already"):
        compare.register_family(family_of(Seq2SeqConfig()))
    with pytest.raises(ValueError, match="a family must be a Family, found 'rnn'"):
        compare.register_family("rnn")


def test_the_version(capsys: pytest.CaptureFixture[str]):
    assert compare.__version__ == metadata.version("attnbench")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"attnbench {compare.__version__}\n"


@pytest.mark.parametrize("package", ["compare", "data", "seq2seq", "transformer"])
def test_every_package_tells_type_checkers_that_it_is_typed(package: str):
    assert (ROOT / package / "py.typed").is_file()
