"""Run one model: training, choice of the length penalty, translation, result."""

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

import torch

from compare.decoding.search import GridPoint, LengthPenalty, choose_penalty, length_penalties
from compare.decoding.translator import Translator
from compare.experiment.compute_result import all_code_versions, compute_figures, unfinished_result
from compare.experiment.likelihood import force_decode
from compare.experiment.prepare import PreparedData
from compare.experiment.start import set_initial_weights
from compare.models.registry import build
from compare.results.records import Likelihoods, RawSpeed, Selection, read_selection
from compare.results.run_folder import RunFolder
from compare.results.store import Result, json_text, save_result, write_record
from compare.scoring import bleu_and_length_ratio
from compare.system.device import set_numerics, this_machine
from compare.system.log import MetricsCallback, Reporter, counting
from compare.system.measure import peak_memory_bytes, reset_peak_memory
from compare.system.messages import first_line, is_out_of_memory
from compare.system.processes import SINGLE, Processes
from compare.training.checkpoints import CHECKPOINTS, drop_state, has_begun
from compare.training.log import read_metrics
from compare.training.loss import TranslationLoss
from compare.training.source_attention import AttentionProbe
from compare.training.trainer import Trainer, TrainingDiverged, Validator
from data.corpus import Corpus, Pairs
from data.files import append_whole, hash_file, write_atomically

logger = logging.getLogger(__name__)


RunModel = Callable[[RunFolder, PreparedData, Reporter], Result]
"""Function that trains and tests one run, such as ``run_model``."""


def finish_run(run: RunFolder, prepared: PreparedData, reporter: Reporter, train: RunModel) -> Result:
    """Train and test one run in its locked folder, and write its result.

    Divergence, lack of memory and errors of torch become results too.

    Raises:
        ValueError: a file of the run is damaged.
        Interrupted: a signal arrived; the state is saved.
        ConnectionError: another process has ended.
    """
    try:
        result = train(run, prepared, reporter)
    except TrainingDiverged as error:
        logger.error(f"{run.name}: failed: {error}")
        result = replace(unfinished_result(run, prepared), status="failed", reason=str(error))
    except (MemoryError, RuntimeError, ImportError) as error:
        kind = "out of memory" if is_out_of_memory(error) else type(error).__name__
        reason = f"{kind}: {first_line(error)}"
        log = run.folder / "log.txt"
        logger.error(f"{run.name}: {reason} (see {log}); run the same command to try again")
        append_whole(log, "".join(traceback.format_exception(error)))
        result = replace(unfinished_result(run, prepared), reason=reason)
    if result.status == "done":
        drop_state(run.folder / CHECKPOINTS)  # a larger budget starts from the trunk, which stays
    save_result(run.folder, result)
    return result


def run_model(
    folder: RunFolder, prepared: PreparedData, reporter: Reporter, processes: Processes = SINGLE
) -> Result:
    """Train one model, from the start or from the saved state, and test the chosen weights."""
    run, was_begun = folder.run, has_begun(folder.folder / CHECKPOINTS)
    device = torch.device(run.train.device)
    reset_peak_memory(device)

    def test() -> Result:
        """Test the weights; process 0 does this, and the others take part in its searches."""
        # An earlier process may have used more memory in training.
        in_training = None if was_begun else peak_memory_bytes(device)
        reset_peak_memory(device)
        seconds = evaluate_run(folder, translator, prepared.corpus)
        in_decoding = peak_memory_bytes(device)
        raw = RawSpeed(
            decode_s=seconds,
            peak_memory_bytes=in_training and max(in_training, in_decoding or 0),
            train_peak_memory_bytes=in_training,
            decode_peak_memory_bytes=in_decoding,
            decoded_on=this_machine(device),
        )
        write_record(folder.speed, raw)
        figures = compute_figures(folder, prepared)
        code = all_code_versions(run, read_metrics(folder.metrics))
        logged = len(prepared.warnings) + len(run.warnings)
        for warning in (figures["warnings"] or "").splitlines()[logged:]:
            logger.warning(f"{run.label}: {warning}")
        result = replace(unfinished_result(folder, prepared), code_version=code, **figures)
        return replace(result, status="done", files=folder.hashes())

    updates = run.train.max_updates
    with reporter.training(folder.name, updates) as report, counting("sentences") as progress:
        trainer, translator = build_trainer(folder, prepared, report, processes)
        translator.progress = progress
        trainer.run()
        return translator.lead(test)


def build_trainer(
    folder: RunFolder, prepared: PreparedData, report: MetricsCallback, processes: Processes = SINGLE
) -> tuple[Trainer, Translator]:
    """Build a model with its trainer, which continues from a saved state, and its translator.

    Processes that train together build equal trainers. The translator has the chosen weights after training.
    """
    run, device = folder.run, torch.device(folder.run.train.device)
    set_numerics(device, deterministic=run.train.deterministic)
    torch.manual_seed(run.train.seed)
    model = build(run.model.architecture, *prepared.vocabulary_sizes)
    if run.train.init_from is not None and not has_begun(folder.folder / CHECKPOINTS):
        set_initial_weights(model, run)
    model = model.to(device)
    criterion = TranslationLoss(model, run.train.label_smoothing, run.regularization)
    translator = Translator(model, prepared.vocabularies, run.decode, device, processes=processes)
    pairs, valid = prepared.corpus.splits["valid"], prepared.valid
    # Characters of two languages do not translate each other.
    probe = None if run.vocabulary.kind == "characters" else AttentionProbe(prepared.train, valid)
    trainer = Trainer(
        criterion=criterion,
        train_batches=prepared.stream,
        validate=Validator(criterion, translator, run, pairs, valid, probe),
        train_config=run.train,
        optim_config=run.model.optim,
        run_folder=folder.folder,
        report=report,
        processes=processes,
    )
    return trainer, translator


def evaluate_run(folder: RunFolder, translator: Translator, corpus: Corpus) -> float | None:
    """Translate every test set, with a length penalty chosen on validation, and score the references.

    Returns the seconds of translation; None for language models and without test sets.
    """
    seconds, at_limit = None, dict[str, int]()
    if folder.run.translates and corpus.tests:
        translator.penalty = select_penalty(folder, translator, corpus.splits["valid"])
        logger.info(f"{folder.run.label}: decoding {', '.join(corpus.tests)}")
        seconds = 0.0
        for test in corpus.tests:
            start = time.perf_counter()
            (translations,) = translator.translate_all(corpus.splits[test].src)
            seconds += time.perf_counter() - start
            at_limit[test] = sum(translation.is_cut for translation in translations)
            write_atomically(
                folder.plain_output(test), "".join(f"{translation.text}\n" for translation in translations)
            )
    if corpus.tests:
        scores = {
            test: force_decode(translator, corpus.splits[test].src, corpus.splits[test].tgt)
            for test in corpus.tests
        }
        likelihoods = Likelihoods(
            tests={test: forced.sums for test, forced in scores.items()},
            weights=hash_file(folder.weights),
            at_limit=at_limit,
            sentences={test: [round(one.total, 4) for one in scores[test].sentences] for test in scores},
        )
        write_atomically(folder.likelihoods, json_text(likelihoods, indent=0) + "\n")
    return seconds


def select_penalty(folder: RunFolder, translator: Translator, valid: Pairs) -> LengthPenalty:
    """Choose the length penalty of a run on the validation set, and write selection.json."""
    run, penalties = folder.run, length_penalties(folder.run.decode)
    if len(penalties) == 1:
        return penalties[0]
    weights = hash_file(folder.weights)
    if folder.selection.exists():
        earlier = read_selection(folder.selection, penalties)
        if earlier.weights == weights:
            return earlier.penalty
    logger.info(f"{run.label}: choosing one of {len(penalties)} length penalties on the validation set")
    grid, references = list[GridPoint](), run.readable(valid.tgt)
    for penalty, translations in zip(penalties, translator.translate_all(valid.src, penalties), strict=True):
        texts = [translation.text for translation in translations]
        bleu, ratio = bleu_and_length_ratio(texts, references, run.scoring.tokenize)
        form, alpha = penalty.normalization, penalty.alpha
        grid.append(GridPoint(normalization=form, length_penalty=alpha, bleu=bleu, length_ratio=ratio))
    selection = Selection(grid=grid, chosen=choose_penalty(grid), weights=weights)
    point = grid[selection.chosen]
    logger.info(
        f"{run.label}: length penalty {point.penalty}: validation BLEU {point.bleu:.1f} "
        f"(best {max(other.bleu for other in grid):.1f}), length ratio {point.length_ratio:.3f}"
    )
    write_record(folder.selection, selection)
    return selection.penalty
