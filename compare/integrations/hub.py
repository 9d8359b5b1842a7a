"""Download and upload of saved models on the Hugging Face hub, by huggingface_hub (extra ``hub``)."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compare.integrations.extras import import_extra
from compare.system.hints import first_line

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def is_hub_id(text: str) -> bool:
    """Return whether ``text`` has the form OWNER/NAME."""
    return HUB_ID.fullmatch(text) is not None


def download_model(repo_id: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Download the files of a model into the cache of huggingface_hub; unchanged ones are there already.

    Args:
        repo_id: OWNER/NAME.
        files: names of the files; others are not downloaded.
        revision: branch, tag or commit; None: the main branch.

    Returns:
        The folder with the files.

    Raises:
        ValueError: no such model, or the hub cannot be reached.
    """
    hub = import_extra("huggingface_hub", "hub", f"{repo_id} on the hub")
    with _one_line(repo_id):
        folder = hub.snapshot_download(
            repo_id, revision=revision, allow_patterns=list(files), endpoint=os.environ.get("HF_ENDPOINT")
        )
    return Path(folder)


def upload_model(folder: Path, repo_id: str, *, private: bool, revision: str | None) -> str:
    """Upload all files of ``folder`` in one commit; return the address of the model.

    Args:
        folder: the saved model.
        repo_id: OWNER/NAME; created where it is missing.
        private: make a new repository private.
        revision: an existing branch; None: the main one.

    Raises:
        ValueError: the hub cannot be reached or refuses.
    """
    hub = import_extra("huggingface_hub", "hub", "push_to_hub")
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with _one_line(repo_id):
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=folder, repo_id=repo_id, revision=revision, commit_message="Model saved by attnbench"
        )
    return str(address)


@contextmanager
def _one_line(repo_id: str) -> Iterator[None]:
    """Turn the errors of the hub and of the network into a ValueError of one line."""
    try:
        yield
    except Exception as error:  # the classes of the HTTP library differ between versions of huggingface_hub
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if "RepositoryNotFoundError" in kinds or "RevisionNotFoundError" in kinds:
            raise ValueError(
                f"{repo_id}: no such model or revision on the hub, or it is private: check the name, or log "
                "in with `hf auth login`"
            ) from None
        offline = {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "TransportError", "ConnectionError"}
        if offline.intersection(kinds):
            raise ValueError(
                f"{repo_id}: the hub cannot be reached ({type(error).__name__}): check the network, or give "
                "the folder of a model that you have"
            ) from None
        if isinstance(error, OSError | ValueError | RuntimeError):
            raise ValueError(f"{repo_id}: the hub refused: {first_line(error)}") from None
        raise
