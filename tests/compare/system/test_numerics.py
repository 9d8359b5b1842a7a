"""What is set before the first work on a GPU; a processor needs nothing."""

import os
from collections.abc import Iterator

import pytest
import torch

from compare.system.cpu import set_numerics


@pytest.fixture(autouse=True)
def restore(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "before")
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32 = True  # torch's default; an earlier test may have changed it
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


def test_nothing_changes_on_a_processor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    set_numerics(torch.device("cpu"), deterministic=True)
    assert torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_recurrent_layers_of_fp32_are_not_rounded(name: str):
    set_numerics(torch.device(name))
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == "before"


def test_deterministic_is_set_and_taken_back(monkeypatch: pytest.MonkeyPatch):
    """Another run of the same process may ask for the other value; a user's own variable stays."""
    set_numerics(torch.device("cuda"), deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == "before"
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    set_numerics(torch.device("cuda"), deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    set_numerics(torch.device("cuda"))
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
