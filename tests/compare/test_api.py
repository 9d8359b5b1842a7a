"""The public API: complete, lazy, and visible to tab completion."""

from importlib import import_module, metadata
from types import ModuleType

import pytest

import compare
import data
from compare.cli import main
from compare.models.presets import PRESETS, Preset
from compare.models.registry import family_of
from seq2seq.config import Seq2SeqConfig

LAZY = pytest.mark.parametrize("package", [compare, data], ids=["compare", "data"])


@LAZY
def test_every_public_name_is_there_and_listed(package: ModuleType):
    assert set(package.__all__) <= set(dir(package))
    assert len(package.__all__) == len(set(package.__all__))
    for name, module in package._MODULES.items():
        assert getattr(package, name) is getattr(import_module(module), name)


@LAZY
def test_an_unknown_name_is_an_attribute_error(package: ModuleType):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'load_modle'"):
        _ = package.load_modle


PRESET = Preset(about="a test", source="this file", architecture=Seq2SeqConfig())


def test_a_preset_is_registered_and_no_family_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("compare.models.presets.PRESETS", dict(PRESETS))
    compare.register_preset("new", PRESET)
    assert compare.list_presets()[-1] == "new"
    with pytest.raises(ValueError, match="Seq2SeqConfig is registered already"):
        compare.register_family(family_of(Seq2SeqConfig()))


def test_the_version(capsys: pytest.CaptureFixture[str]):
    assert compare.__version__ == metadata.version("attnbench")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"attnbench {compare.__version__}\n"
