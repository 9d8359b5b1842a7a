"""What another process than the one that began a run does: finish it from its folder."""

from pathlib import Path

from compare.experiment.folder import open_registry
from compare.experiment.prepare import prepare_data
from compare.experiment.run import finish_run, has_ended
from compare.experiment.timing import results_to_time, time_all
from compare.results.run_folder import RunFolder
from compare.system.child import Channel
from compare.system.cpu import tune_cpu
from compare.system.log import Reporter, log_to_file, no_messages
from compare.system.plugins import code_version
from compare.system.signals import lock_folder
from data.vocabulary import load_pair


def finish_begun_run(channel: Channel, folder: str) -> str:
    """Finish a run in a child process; returns its status."""
    with channel.messages():
        return finish_folder(Path(folder), channel.reporter(Path(folder).name))


def finish_folder(folder: Path, reporter: Reporter) -> str:
    """Finish a run that ``begin_run`` has begun, and write its result; returns its status.

    Settings and vocabularies come from its folder, the encoded corpus from the experiment's.

    Args:
        folder: the folder of the run.
        reporter: shows the progress of training.

    Raises:
        Locked: another process works on the run.
        ValueError: files of the run are damaged, or the corpus has changed since the run was begun.
        Interrupted: a signal arrived; the state is saved.
    """
    code_version()  # of the sources as they are now
    with lock_folder(folder):
        run = RunFolder.read(folder)
        if has_ended(run):
            return "already finished"
        tune_cpu(batch_tokens=run.run.train.batch_tokens)
        with no_messages("compare.experiment.prepare"):  # who began the run has printed them
            prepared = prepare_data(run.run, folder.parent / "encoded", vocabularies=load_pair(folder))
        open_registry(folder.parent, prepared)  # refuses other data
        with log_to_file(folder / "log.txt"):
            return finish_run(run, prepared, reporter).status


def time_folder(folder: Path, seed: int) -> str:
    """Time the models of an experiment whose runs have ended; returns what was done.

    Args:
        folder: the folder of the experiment.
        seed: seed of the batches that are timed.
    """
    results = results_to_time(folder)
    if not results:
        return "already timed"
    run = RunFolder.read(folder / results[0].run)
    tune_cpu(batch_tokens=run.run.train.batch_tokens)
    with no_messages("compare.experiment.prepare"):
        prepared = prepare_data(run.run, folder / "encoded", vocabularies=load_pair(run.folder))
    open_registry(folder, prepared)
    time_all(folder, run.run.with_seed(seed), prepared.for_seed(seed))
    return "timed"
