"""CTranslate2 in the benchmark: the weights of our trained Transformer, its own search."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2
import numpy as np
from ctranslate2 import TranslationResult, Translator
from work import Sources, Work
from worker import Racer, Task, Unsupported, serve

from compare.integrations.ctranslate2_model import Numbers, convert

TYPES = {"fp32": "float32", "bf16": "bfloat16"}


class CTranslate2(Racer):
    """CTranslate2 4.8."""

    packages = ("ctranslate2", "numpy")

    def __init__(self, work: Work, task: Task) -> None:
        if task.phase != "ct2":
            raise Unsupported("takes part in phase ct2 only")
        kind = TYPES[task.precision]
        if kind not in ctranslate2.get_supported_compute_types("cpu"):
            raise Unsupported(f"has no {kind} on this processor")
        self.beam = task.beam
        with np.load(task.weights, allow_pickle=False) as arrays:
            arrays = dict(arrays)
        numbers = {name: int(arrays.pop(f"numbers/{name}")) for name in ("params", *Numbers._fields)}
        self._params = numbers.pop("params")
        pieces = [str(index) for index in range(len(arrays["output.weight"]))]
        with TemporaryDirectory() as folder:
            convert(arrays, Numbers(**numbers), Path(folder) / "model", pieces, pieces)
            self.translator = Translator(
                f"{folder}/model",
                device="cpu",
                compute_type=kind,
                inter_threads=1,
                intra_threads=int(os.environ["OMP_NUM_THREADS"]),
            )
        self.about = f"our weights in {self.translator.compute_type}; length penalty 0, one limit for a batch"

    @property
    def params(self) -> int:
        """As many as the model it was exported from."""
        return self._params

    def sources(self, sources: Sources) -> tuple[list[list[str]], int]:
        """Pieces, and the limit of the longest sentence for all."""
        pieces = [
            [str(index) for index in ids[:length]]
            for ids, length in zip(sources.ids.tolist(), sources.lengths.tolist(), strict=True)
        ]
        return pieces, 2 * int(sources.lengths.max()) + 10

    def translate(self, sources: tuple[list[list[str]], int]) -> list[TranslationResult]:
        """Search without length penalty."""
        pieces, limit = sources
        results: list[TranslationResult] = self.translator.translate_batch(
            pieces, beam_size=self.beam, length_penalty=0, max_decoding_length=limit
        )
        return results

    def ids(self, results: list[TranslationResult]) -> list[list[int]]:
        """The tokens of each best hypothesis."""
        return [[int(piece) for piece in result.hypotheses[0]] for result in results]


if __name__ == "__main__":
    serve(CTranslate2)
