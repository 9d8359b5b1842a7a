"""Interface of a toolkit in the benchmark; requests on stdin, answers on stdout, one JSON object per line.

Needs numpy alone: it runs in the environment of each peer, in a process of its own.
"""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from work import Pairs, Sources, Work, load_work

ONEDNN = "RACE_ONEDNN"
"""Set in the environment: this racer's fp32 products go to oneDNN, as attnbench sends its own."""


class Task(NamedTuple):
    """A task that a toolkit prepares for."""

    model: str
    """transformer, lstm-general or lstm-additive."""
    phase: str
    """train, decode or ct2."""
    precision: str
    """fp32 or bf16."""
    beam: int
    """Hypotheses of the search; 1 is greedy search."""
    run: str
    """Folder of a trained model; for phase ct2."""
    weights: str
    """File with the same model's weights as plain arrays; for phase ct2."""


class Unsupported(Exception):
    """The toolkit cannot do this task; the message is the reason."""


class Racer(ABC):
    """One toolkit's model with its own loss, optimizer and search."""

    packages: ClassVar[tuple[str, ...]] = ("torch", "numpy")
    """Distributions whose versions are reported."""
    model: Any = None
    """The torch module, where there is one."""
    about: str = ""
    """How the model, its loss or its search differ from ours."""
    steps: int = 0
    """Calls of the decoder in the last translation, where that is known."""

    @abstractmethod
    def __init__(self, work: Work, task: Task) -> None:
        """Build what ``task`` asks for, with fresh weights."""

    @property
    def params(self) -> int:
        """Trainable weights, shared ones once."""
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        return sum({id(weight): weight.numel() for weight in weights}.values())

    def pairs(self, pairs: Pairs) -> Any:
        """Give ``pairs`` the form that ``update`` takes; not timed."""
        return pairs

    def sources(self, sources: Sources) -> Any:
        """Give ``sources`` the form that ``translate`` takes; not timed."""
        return sources

    def update(self, pairs: Any) -> Any:
        """Forward, loss, backward, clipping, step; returns the mean loss of a target token."""
        raise Unsupported("does not train")

    def translate(self, sources: Any) -> Any:
        """Search; what it returns ``ids`` can read."""
        raise Unsupported("does not translate")

    def count_steps(self, decoder: Any) -> None:
        """Let ``steps`` grow by one at each call of ``decoder``, a torch module."""

        def count(*_: Any) -> None:
            self.steps += 1

        decoder.register_forward_pre_hook(count)

    def ids(self, outputs: Any) -> list[list[int]]:
        """The best hypothesis of each sentence, without EOS; not timed."""
        return [list(map(int, tokens)) for tokens in outputs]


class _Session:
    """A toolkit, and the batches in its own format."""

    def __init__(self, racer: Racer, work: Work, phase: str) -> None:
        self.racer, self.trains = racer, phase == "train"
        self.batches: list[Any] = (
            [racer.pairs(pairs) for pairs in work.pairs]
            if self.trains
            else [racer.sources(sources) for sources in work.sources]
        )

    def turn(self, first: int, last: int, show: bool) -> dict[str, Any]:
        """Work through batches ``first`` to ``last``; ``show`` returns the translations too."""
        outputs: list[Any] = []
        work = self.racer.update if self.trains else self.racer.translate
        start = time.perf_counter()
        for batch in self.batches[first:last]:
            outputs.append(work(batch))
        seconds = time.perf_counter() - start
        answer: dict[str, Any] = {"seconds": seconds, "peak_memory_bytes": _peak_memory()}
        if self.trains:
            return answer | {"loss": float(outputs[-1])}
        ids = [self.racer.ids(part) for part in outputs]
        lengths = {len(tokens) for part in ids for tokens in part}
        answer |= {"steps": self.racer.steps, "longest": max(lengths), "shortest": min(lengths)}
        return answer | {"ids": [tokens for part in ids for tokens in part]} if show else answer


def serve(kind: type[Racer]) -> None:
    """Answer the runner until its end of the pipe closes; the first argument is the file of the work."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the toolkit's own output must not mix with answers
    work = load_work(Path(sys.argv[1]))
    if ONEDNN in os.environ and "torch" in sys.modules:
        sys.modules["torch"].backends.mkldnn.matmul.fp32_precision = "bf16"  # see compare/fast.py
    session: _Session | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request.pop("do") == "prepare":
                session = None  # the old model's memory goes first
                racer = kind(work, task := Task(**request))
                session = _Session(racer, work, task.phase)
                answer = {"params": racer.params, "about": racer.about, **_place(kind)}
            else:
                answer = session.turn(**request) if session else {"unsupported": "nothing is prepared"}
        except Unsupported as reason:
            answer = {"unsupported": str(reason)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def autocast(precision: str) -> Any:
    """Return the context of a forward pass: torch's autocast to bfloat16, or none."""
    import torch

    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()


def _place(kind: type[Racer]) -> dict[str, Any]:
    """Versions and threads of this process."""
    versions = {name: metadata.version(name) for name in kind.packages}
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else int(os.environ["OMP_NUM_THREADS"])
    return {"versions": {"python": sys.version.split()[0], **versions}, "threads": threads}


def _peak_memory() -> int:
    """Peak memory of this process in bytes; 0 where the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
