"""Check of a run whose plug-ins are not here: its settings, and so its figures, cannot be computed again."""

from collections.abc import Iterator
from pathlib import Path

from compare.check.findings import ComparedValue, Gap
from compare.config.plugins import plugin_problem
from compare.results.result import Result
from compare.results.run_folder import REQUIRED
from compare.training.file_names import WEIGHTS
from data.text.compression import hash_decompressed, plain_or_gzip


def check_stored(folder: Path, result: Result) -> Iterator[ComparedValue | Gap]:
    """Compare the recorded hash of each file with the file; every file of a finished run must have one.

    Args:
        folder: the folder of the run.
        result: its recorded result.
    """
    required: set[str] = set()
    if result.status == "done":
        texts = {
            path.name.removesuffix(".gz") for form in ("*.hyp", "*.hyp.gz") for path in folder.glob(form)
        }
        required = {*REQUIRED, *texts}
    for name in sorted({*result.files, *required}):
        path, recorded = plain_or_gzip(folder / name), result.files.get(name, "no hash")
        if path.is_file():
            yield ComparedValue(result.run, name, recorded, hash_decompressed(path))
        elif name == WEIGHTS and name in result.files:
            yield Gap("the hash of the weights, which are not in the folder", result.run)
        else:
            yield ComparedValue(result.run, name, recorded, "no such file")
    yield Gap(f"all but the hashes of files, and all tables: {plugin_problem(folder)}", result.run)
