"""Measure what the time of a training update consists of, by kind of operation, on a processor.

    OMP_NUM_THREADS=1 python benchmarks/update_profile.py configs/speed.toml --synthetic 14

The models of an experiment train on the same batches, one after the other; torch.profiler records every
operation. A kind has the time in which its operations themselves ran. Python is what is left: Python itself,
autograd, and the profiler, so that the line "without profiler" tells how much of it is real.
"""

import argparse
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

import compare.training.step as step
from compare import BenchPlan, load_experiment, resolve_models
from compare.benchmark import make_inputs
from compare.config.resolve import Run
from compare.experiment.timing import TrainingWork
from compare.models.registry import build
from compare.report.table_formats import draw, terminal_width
from compare.results.formatting import format_number, listing
from compare.system.device import tune_cpu
from compare.system.plugins import code_version
from compare.system.timer import measure_machine, timed

CPU = torch.device("cpu")
UPDATE = "clipping and optimizer"
PYTHON = "Python"
PRODUCTS = "products"
PARTS = {
    UPDATE: UPDATE,
    "LinearCrossEntropy": "loss",
    "MaskAndScale": "dropout",
    "aten::rms_norm": "normalisation",
    "aten::layer_norm": "normalisation",
}
"""Kinds of all operations within one whose name contains a text, but for products and casts of the loss."""
KINDS = {
    PRODUCTS: "mm addmm bmm baddbmm mv addmv dot mkldnn_linear _mkl_linear",
    "fused LSTM": "mkldnn_rnn_layer mkldnn_rnn_layer_backward _thnn_fused_lstm_cell",
    "fused attention": "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "normalisation": "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward",
    "softmax": "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data",
    "dropout": "native_dropout native_dropout_backward bernoulli_ random_",
    "lookups and copies": "copy_ cat stack fill_ zero_ index index_select index_put_ _index_put_impl_ gather "
    "scatter_ scatter_add_ embedding embedding_dense_backward masked_select nonzero",
    "views and memory": "view reshape _unsafe_view _reshape_alias t transpose permute expand slice select "
    "narrow as_strided unsqueeze squeeze unbind split split_with_sizes chunk detach detach_ alias empty "
    "empty_like empty_strided new_empty new_zeros zeros zeros_like ones ones_like resize_ unfold to _to_copy "
    "contiguous clone linear matmul einsum item _local_scalar_dense lift_fresh slice_backward "
    "select_backward",
}
"""Operations of torch by kind; others are elementwise functions and sums."""
KIND_OF = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names.split()}


def kind_of(event: FunctionEvent) -> str:
    """Return the kind of the time that an operation took without those that it called."""
    callers = [event.name]
    parent = event.cpu_parent
    while parent is not None:
        callers.append(parent.name)
        parent = parent.cpu_parent
    parts = [kind for name in callers for text, kind in PARTS.items() if text in name]
    kind = KIND_OF.get(event.name, "elementwise and sums")
    if not event.name.startswith("aten::"):
        kind = PYTHON
    elif kind == "lookups and copies" and "aten::_to_copy" in callers:
        kind = "casts"
    if UPDATE in parts:
        return UPDATE
    return kind if kind in (PRODUCTS, "casts", PYTHON) or not parts else parts[0]


def profile_updates(work: TrainingWork, updates: int) -> tuple[dict[str, float], float]:
    """Profile a work once.

    Returns:
        Milliseconds per update by kind, and the billion operations per second of the products.
    """
    work.warm_up()
    plain_s = min(timed(work, CPU) for _ in range(3))
    update_weights, step.update_weights = step.update_weights, record_function(UPDATE)(step.update_weights)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
        profiled_s = timed(work, CPU)
    step.update_weights = update_weights
    kinds = Counter[str]()
    operations = 0.0
    for event in profiler.events() or ():
        kind = kind_of(event)
        kinds[kind] += event.self_cpu_time_total  # microseconds
        if kind == PRODUCTS:
            operations += event.flops or 0
    kinds[PYTHON] += 1e6 * profiled_s - sum(kinds.values())
    rate = operations / (1e3 * kinds[PRODUCTS])
    ms = {kind: microseconds / 1e3 / updates for kind, microseconds in kinds.most_common()}
    return ms | {"all": 1e3 * profiled_s / updates, "without profiler": 1e3 * plain_s / updates}, rate


def profile_model(run: Run, inputs: Any, product_gflops: float) -> dict[str, str]:
    """Return the cells of a model's column by row."""
    torch.manual_seed(run.train.seed)
    model = build(run.model.architecture, *inputs.vocabulary_sizes)
    ms, rate = profile_updates(TrainingWork(run, model, inputs.updates), len(inputs.updates))
    cells = {kind: f"{value:,.1f} ({value / ms['all']:.0%})" for kind, value in ms.items()}
    return cells | {"products, GFLOP/s": f"{rate:,.0f} ({rate / product_gflops:.0%} of a large one)"}


def rows_of(columns: dict[str, dict[str, str]]) -> Iterator[dict[str, str]]:
    """Turn the cells of each model into rows by kind."""
    last = ("all", "without profiler", "products, GFLOP/s")
    kinds = dict.fromkeys(kind for cells in columns.values() for kind in cells if kind not in last)
    for kind in (*kinds, *last):
        yield {"ms per update": kind} | {label: cells.get(kind, "") for label, cells in columns.items()}


def main() -> None:
    """Profile all models of an experiment and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, help="experiment file")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="as of attnbench bench")
    parser.add_argument("--synthetic", type=float, help="random ids, with this mean sentence length")
    parser.add_argument("--updates", type=int, default=4, help="updates that are profiled [%(default)s]")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    settings = ["train.device=cpu", *options.settings]
    runs = resolve_models(load_experiment(options.config, settings), str(options.config))
    tune_cpu(batch_tokens=runs[0].train.batch_tokens)
    plan = BenchPlan(updates=options.updates, batches=(1,), synthetic=options.synthetic)
    inputs = make_inputs(runs[0], plan)
    started, machine = time.strftime("%Y-%m-%d %H:%M"), measure_machine(CPU, ())
    precision = runs[0].train.precision
    gflops = {"fp32": machine.fp32_gflops, "bf16": machine.bf16_gflops}[precision] or 1.0
    columns = {run.label: profile_model(run, inputs, gflops) for run in runs}
    facts = {"updates": len(inputs.updates), "target tokens of an update": runs[0].train.batch_tokens}
    facts |= {name: value for name, value in vars(machine).items() if value is not None}
    conditions = [
        f"{precision}, {started}, attnbench {code_version()}",
        ", ".join(f"{name} {format_number(value)}" for name, value in facts.items()),
    ]
    print(draw(listing(list(rows_of(columns)), {"ms per update"}, conditions=conditions), terminal_width()))


if __name__ == "__main__":
    main()
