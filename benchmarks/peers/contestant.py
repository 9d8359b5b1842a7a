"""The process of one toolkit: start, requests and end."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
OURS = "attnbench"
RACERS = {
    OURS: "race_ours.py",
    "joeynmt": "race_joeynmt.py",
    "eole": "race_eole.py",
    "opennmt-py": "race_opennmt.py",
    "ctranslate2": "race_ctranslate2.py",
}
USES_OURS = (OURS, "ctranslate2")
"""Toolkits whose process imports from this repository; of CTranslate2 the conversion, without torch."""
MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
"""Keep freed memory in the process, for all toolkits; ``compare.fast`` does this by mallopt."""
COMPILED = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
"""Limit the cache of compiled products in training, for all toolkits; as in ``compare.fast``."""


class Failed(RuntimeError):
    """The process of a toolkit died; the message contains the end of its output."""


class Contestant:
    """The process of one toolkit."""

    def __init__(self, name: str, work: Path, environments: Path, threads: int, *, trains: bool) -> None:
        self.name = name
        python = Path(sys.executable) if name == OURS else environments / name / "bin" / "python"
        if not python.exists():
            raise ValueError(f"{python}: no environment for {name}: run benchmarks/peers/install.sh first")
        settings = {  # the user's own come before ours, but for the number of threads, which is an option
            "MKL_NUM_THREADS": str(threads),
            **MEMORY,
            **(COMPILED if trains else {}),
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
        }
        settings.pop("PYTHONPATH", None)
        if name in USES_OURS:
            settings["PYTHONPATH"] = str(ROOT)
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [python, FOLDER / RACERS[name], work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=settings,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": do, **request}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._errors.seek(0)
            raise Failed(f"{self.name} died:\n{self._errors.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._process.communicate()
