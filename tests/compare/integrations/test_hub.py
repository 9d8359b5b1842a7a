"""The hub: a model goes up and comes down unchanged; whatever fails is one line."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compare import from_pretrained, load_model, push_to_hub
from compare.integrations.hub import is_hub_id
from tests.kits.hub_server import HubServer, serving_hub

LINES = ["red dog sees old cat", "small tree"]
NAME = "someone/luong-en-de"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A hub of our own, an empty cache, and a token that it knows."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (extra hub)")
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    disable_progress_bars()
    with serving_hub("secret") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def refused(call: Callable[[], object], *parts: str) -> None:
    """``call`` must fail with one line that holds all ``parts``."""
    with pytest.raises(ValueError, match=re.escape(parts[0])) as caught:
        call()
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_up_and_down(hub: HubServer, finished: Path):
    translator = load_model(finished / "luong-seed1")
    assert push_to_hub(translator, NAME, private=True) == f"{hub.address}/{NAME}"
    assert hub.private == {NAME: True}
    assert {"config.toml", "vocabulary.json", "model.safetensors", "README.md"} <= set(hub.repos[NAME])
    hub.repos[NAME]["pytorch_model.bin"] = b"a pickle, which nobody reads"
    loaded = from_pretrained(NAME)
    assert loaded.translate(LINES) == translator.translate(LINES)
    assert loaded.generate(LINES, n_best=2) == translator.generate(LINES, n_best=2)
    assert not any("pytorch_model.bin" in asked for asked in hub.asked)


def test_damage_on_the_way_is_noticed(hub: HubServer, finished: Path):
    push_to_hub(finished / "luong-seed1", NAME)
    hub.repos[NAME]["model.safetensors"] = hub.repos[NAME]["model.safetensors"][:-1] + b"\x01"
    refused(lambda: from_pretrained(NAME), "are not the weights of this run's result")


def test_what_the_hub_refuses(hub: HubServer, finished: Path, monkeypatch: pytest.MonkeyPatch):
    refused(lambda: from_pretrained("someone/nothing"), "someone/nothing: no such model", "hf auth login")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    refused(lambda: push_to_hub(finished / "luong-seed1", NAME), NAME, "hub refused")
    assert hub.repos == {}


def test_without_network(hub: HubServer, finished: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    refused(lambda: from_pretrained(NAME), NAME, "the hub cannot be reached")
    refused(lambda: push_to_hub(finished / "luong-seed1", NAME), NAME, "the hub cannot be reached")


def test_without_the_extra(finished: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(lambda: from_pretrained(NAME), "pip install 'attnbench[hub]'")
    refused(lambda: push_to_hub(finished / "luong-seed1", NAME), "pip install 'attnbench[hub]'")
    refused(lambda: push_to_hub(finished / "luong-seed1", "no-owner"), "not the id of a model")


def test_ids():
    assert all(map(is_hub_id, ["a/b", "Helsinki-NLP/opus-mt-de-en", "a_b/c.d"]))
    assert not any(map(is_hub_id, ["a", "a/b/c", "../a", "/a/b", "a/..", "a b/c", "a/b\n", ""]))
