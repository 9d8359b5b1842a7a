"""External systems: rows of a table whose translations were made by another program.

Such a row has a run folder with the shared settings, the translations and a result.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compare.config.resolve import EXTERNAL_MODEL, Run
from compare.config.sections import EXTERNAL, SystemConfig
from compare.experiment.compute_result import compute_figures, unfinished_result
from compare.experiment.prepare import PreparedData
from compare.results.run_folder import RunFolder
from compare.results.store import save_result
from compare.system.messages import did_you_mean
from data.corpus import Corpus
from data.files import write_atomically
from data.text import read_lines

logger = logging.getLogger(__name__)

SEED = 1


@dataclass(frozen=True, kw_only=True)
class ExternalRow(RunFolder):
    """Folder of an external system."""

    translations: Mapping[str, Sequence[str]]

    def write(self, prepared: PreparedData) -> None:
        """Copy the translations into the folder, and score them."""
        logger.info(f"{self.name}: translations of another program")
        self.folder.mkdir(exist_ok=True)
        prepared.vocabularies.save(self.folder)
        write_atomically(self.config, self.run.to_toml())
        for test, lines in self.translations.items():
            path, text = self.plain_output(test), "".join(f"{line}\n" for line in lines)
            if path.is_file() and path.read_bytes() != text.encode():
                self.external.unlink(missing_ok=True)  # it has scores of the earlier translations
            write_atomically(path, text)
        result = replace(unfinished_result(self, prepared), status="done", files=self.hashes())
        save_result(self.folder, replace(result, **compute_figures(self, prepared)))


def read_system(system: SystemConfig, run: Run, corpus: Corpus, folder: Path) -> ExternalRow:
    """Read the translations of an external system; its row gets the shared settings of ``run``.

    Raises:
        ValueError: the files do not fit the test sets, the models do not translate, or the folder holds a
            trained model with this label.
    """
    context, tests = f"systems.{system.label}", corpus.tests
    if not run.translates:
        raise ValueError(f"{context}: the models are for {run.task}, so there are no translations to compare")
    for test in system.files:
        if test not in tests:
            raise ValueError(f"{context}: no test set {test!r}; {did_you_mean(test, tests)}")
    translations = {}
    for test in tests:
        if test not in system.files:
            raise ValueError(f"{context}: translations of {test} are missing: write {test} = FILE")
        path, size = Path(system.files[test]), len(corpus.splits[test].src)
        translations[test] = read_lines(path, allow_blank=True)
        if (lines := len(translations[test])) != size:
            cut = f", which data.max_test has cut from {corpus.uncut[test]}" if test in corpus.uncut else ""
            raise ValueError(f"{context}: {path} has {lines} lines, but {test} has {size} sentences{cut}")
    external = replace(run.with_seed(SEED), label=system.label, preset=EXTERNAL, model=EXTERNAL_MODEL)
    row = ExternalRow(run=external, folder=folder / external.name, translations=translations)
    if row.config.is_file() and not RunFolder.read(row.folder).run.is_external:
        raise ValueError(f"{context}: {row.folder} holds a trained model: choose another label")
    return row
