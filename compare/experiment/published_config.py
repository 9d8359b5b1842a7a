"""Settings of a published run: names stand in place of the paths of this machine."""

import json
import re
from pathlib import Path

from compare.config.toml_text import toml_assignments
from compare.results.run_folder import MASKS, RunFolder
from data.text.files import read_bytes

MAX_BYTES = 1_000_000_000
"""Size that no file of a run other than its weights reaches."""
INIT_LINE = re.compile(r'^(?P<key>init_from\s*=\s*)(?P<path>".*")$', re.MULTILINE)
MASK_LINE = re.compile(rf'^(?P<key>{"|".join(MASKS)})\s*=\s*".*\.npy"$', re.MULTILINE)
ROOT_LINE = re.compile(r"^root\s*=.*$", re.MULTILINE)


def published_config(run: RunFolder) -> bytes:
    """Return the content of config.toml, with names in place of the paths of the corpus and of masks."""
    text = read_bytes(run.config, max_bytes=MAX_BYTES).decode()
    text = MASK_LINE.sub(lambda match: f'{match["key"]} = "{match["key"]}.npy"', text)
    return without_path(text, corpus_name(run.run.data.root)).encode()


def corpus_name(root: str) -> str:
    """Return the last part of ``data.root``, which does not depend on the machine; empty: built in."""
    return (Path(root).name or "corpus") if root else ""


def without_path(config: str, corpus: str) -> str:
    """Replace ``data.root`` in the text of a config by the name of the corpus, and shorten ``init_from``."""
    (line,) = toml_assignments({"root": corpus})
    text = ROOT_LINE.sub(lambda _: line, config, count=1)
    return INIT_LINE.sub(lambda match: f"{match['key']}{_last_parts(match['path'])}", text, count=1)


def _last_parts(path: str) -> str:
    """Return the last two parts of a path in TOML, "experiment/run"; any other text as it is."""
    return json.dumps("/".join(Path(json.loads(path)).parts[-2:]), ensure_ascii=False)
