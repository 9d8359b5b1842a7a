"""Forgeries of logs, weights and translations."""

from tests.kits.tamper import Tamper
from tests.kits.tamper_actions import (
    LSTM,
    OTHER,
    RUN,
    add_compressed,
    copy_files,
    copy_most_references,
    copy_references,
    correct_line,
    drop_line,
    flip_bit,
    log,
    perfect,
    row,
    scaled,
    scaled_tokens,
    swap,
)
from tests.kits.tamper_measurements import (
    borrow_scores,
    choose_longest,
    claim_score,
    double_tokens,
    halve_loss,
    likelihoods,
    raise_last,
    selection,
    set_length_ratios,
)

VALIDATED = ("valid", "average", "final")

TAMPERS_OF_FILES = (  # The log.
    Tamper(
        "`tokens_per_s` tripled",
        log(scaled(tokens_per_s=3), "train"),
        "luong-seed1: metrics.jsonl: tokens_per_s of update … (and … more): recorded …, found …",
        figures=True,
    ),
    Tamper(
        "`tokens_per_s` tripled, and its seconds divided by three",
        log(scaled(train_s=1 / 3, data_s=1 / 3, tokens_per_s=3), "train"),
        "luong-seed1: metrics.jsonl: seconds of the train line of update … (and … more): recorded …, found …",
        figures=True,
    ),
    Tamper(
        "tokens doubled, and their speed",
        log(scaled_tokens, "train"),
        "luong-seed1: metrics.jsonl: src_tokens of update … (and … more): recorded 2752, found 1376",
        figures=True,
    ),
    Tamper(
        "`learning_rate` in the log",
        log(scaled(learning_rate=2), "train"),
        "luong-seed1: metrics.jsonl: learning_rate of update … (and … more): recorded …, found …",
    ),
    Tamper(
        "training loss halved",
        log(scaled(loss=0.5), "train"),
        "luong-seed1: metrics.jsonl: loss of update … (and … more): recorded …, found …",
    ),
    Tamper(
        "validation BLEU 99 in the final line",
        log(perfect, "final"),
        "luong-seed1: metrics.jsonl: bleu of the final line: recorded …, found …",
    ),
    Tamper(
        "validation BLEU 99 in every line",
        log(perfect, *VALIDATED),
        "luong-seed1: metrics.jsonl: bleu of the final line, by the weights: recorded …, found …",
        decode="1",
    ),
    Tamper(
        "validation loss halved in every line",
        log(scaled(loss=0.5), *VALIDATED),
        "luong-seed1: metrics.jsonl: loss of the final line, by the weights: recorded …, found …",
        "1",
        figures=True,
    ),
    Tamper(
        "another best update",
        log(lambda line: line.update(best_update=7), "final"),
        "luong-seed1: metrics.jsonl: best_update of the final line: recorded 7, found 120",
        figures=True,
    ),
    Tamper(
        "a line of the log taken out",
        drop_line,
        "luong-seed1: metrics.jsonl: updates of update …: recorded 10, found 30",
    ),
    Tamper(
        "another epoch in every line",
        log(lambda line: line.update(epoch=9), "train"),
        "luong-seed1: metrics.jsonl: epoch of update … (and … more): recorded 9, found 1",
    ),
    # Weights and translations.
    Tamper(
        "final weights of two seeds exchanged",
        swap("checkpoints/final.safetensors"),
        "luong-seed1: checkpoints/final.safetensors, update …: recorded …, found …",
    ),
    Tamper(
        "all checkpoints of two seeds exchanged",
        swap("checkpoints"),
        "luong-seed1: metrics.jsonl: loss of the final line, by the weights: recorded …, found …",
        decode="1",
    ),
    Tamper(
        "one bit of the weights",
        flip_bit("checkpoints/final.safetensors"),
        "luong-seed1: checkpoints/final.safetensors, update …: recorded …, found …",
    ),
    Tamper(
        "the references put in as translations",
        copy_references,
        "luong-seed1: test.hyp: recorded translations, found the references, with validation BLEU …",
        figures=True,
    ),
    Tamper(
        "the references put in as translations, but for one line",
        copy_most_references,
        "luong-seed1: test.hyp: recorded translations, found the references, with validation BLEU …",
        figures=True,
    ),
    Tamper(
        "other translations beside those of the run, compressed",
        add_compressed,
        "luong-seed1: test.hyp.gz: recorded test.hyp as well, found no other file",
    ),
    Tamper(
        "one translation corrected",
        correct_line,
        "luong-seed1: test.hyp, line …: recorded …, found …",
        decode="all",
        figures=True,
    ),
    Tamper(
        "`perplexity` of a row",
        row(perplexity=1.5),
        "luong-seed1: perplexity: recorded …, found …",
    ),
    Tamper(
        "more tokens in the perplexity",
        likelihoods(double_tokens),
        "luong-seed1: perplexity.json: tokens of test: recorded 336, found 168",
        figures=True,
    ),
    Tamper(
        "a smaller loss in the perplexity",
        likelihoods(halve_loss),
        "luong-seed1: perplexity.json: nll of test, by the weights: recorded …, found …",
        decode="1",
        figures=True,
    ),
    Tamper(
        "the perplexity of another seed",
        copy_files(OTHER, RUN, "perplexity.json"),
        "luong-seed1: perplexity.json: weights: recorded …, found …",
        figures=True,
    ),
    Tamper(
        "a score of a metric from outside",
        claim_score,
        "luong-seed1: human: recorded …, found …",
    ),
    Tamper(
        "segment scores of a metric from outside, of the translations of another seed",
        borrow_scores,
        "luong-seed1: external.json: human of test: translations: recorded …, found …",
        figures=True,
    ),
    Tamper(
        "translations of two models exchanged",
        swap("test.hyp", RUN, LSTM),
        "luong-seed1: test.hyp, line … (and … more): recorded …, found …",
        "3",
        figures=True,
    ),
    Tamper(
        "translations of one seed copied to another",
        copy_files(RUN, OTHER, "test.hyp", "test_short.hyp"),
        "luong-seed2: test.hyp: recorded its own, found those of luong-seed1",
        figures=True,
    ),
    Tamper(
        "translations of one test set copied to another seed",
        copy_files(RUN, OTHER, "test.hyp"),
        "luong-seed2: test.hyp: recorded its own, found those of luong-seed1",
        figures=True,
    ),
    Tamper(
        "length ratios of validation set to 1",
        selection(set_length_ratios),
        "luong-seed1: selection.json: length_ratio of length penalty … (wu), by the weights: "
        "recorded …, found …",
        decode="1",
    ),
    Tamper(
        "another length penalty chosen, against the rule",
        selection(choose_longest),
        "luong-seed1: selection.json: recorded a choice by the rule, found not what was chosen on validation "
        "(chosen is …, but the rule gives …): put the run's own back, or delete it and the run's result.json "
        "and run the experiment again",
    ),
    Tamper(
        "another length penalty chosen, with a BLEU that makes the rule choose it",
        selection(raise_last),
        "luong-seed1: selection.json: bleu of length penalty … (wu), by the weights: recorded …, found …",
        decode="1",
        figures=True,
    ),
)
