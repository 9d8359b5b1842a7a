"""Settings written out mean the same when they are read back."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compare.config.parse import load_experiment
from compare.config.run import resolve_model
from compare.config.sections import (
    SECTIONS,
    BenchConfig,
    BudgetConfig,
    DataConfig,
    DecodeConfig,
    Experiment,
    ModelConfig,
    RegularizationConfig,
    TrainConfig,
    VocabularyConfig,
)
from compare.config.toml import SCHEMA, to_toml
from compare.models.presets import PRESETS
from compare.optim import SCHEDULES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNT = st.integers(1, 10**12)
POSITIVE = st.floats(0, 1e300, exclude_min=True)
LABELS = st.text("abcXYZ019-_+ä漢", min_size=1, max_size=6)
DATA = st.builds(
    DataConfig,
    root=TEXT.map("/r".__add__),
    src=TEXT,
    tgt=TEXT.map("t".__add__),
    max_tokens=COUNT,
    max_test=st.integers(0, 10**12),
    train_size=st.integers(0, 10**7),
).filter(lambda data: data.src != data.tgt)
TRAIN = st.builds(
    TrainConfig,
    seed=st.integers(0, 2**63 - 1),
    device=st.sampled_from(["auto", "cpu", "cuda"]),
    precision=st.sampled_from(["auto", "fp32", "bf16"]),
    max_updates=COUNT,
    label_smoothing=st.floats(0, 1, exclude_max=True),
    clip_norm=POSITIVE,
    patience=st.integers(0, 99),
)
WEIGHT = st.none() | st.floats(0, 1e300)
REGULARIZATION = (
    st.just(RegularizationConfig())
    | st.builds(RegularizationConfig, subword_sampling=st.floats(0, 1, exclude_max=True))
    | st.builds(RegularizationConfig, consistency=st.just("r-drop"), consistency_weight=WEIGHT)
    | st.builds(
        RegularizationConfig,
        consistency=st.just("simcut"),
        consistency_weight=WEIGHT,
        cut=st.none() | st.floats(0, 1, exclude_min=True, exclude_max=True),
    )
)
OPTIM = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": POSITIVE,
        "schedule": st.sampled_from(sorted(SCHEDULES)),
        "weight_decay": st.floats(0, 1e300),
        "beta2": st.floats(0, 1, exclude_min=True, exclude_max=True),
        "dropout": st.floats(0, 1, exclude_max=True),
        "tie": st.sampled_from(["none", "output", "all"]),
    },
)


def go_together(row: ModelConfig) -> bool:
    """Some presets need embeddings that are not tied, or dropout."""
    try:
        resolve_model(row)
    except ValueError:
        return False
    return True


ROWS = st.lists(
    st.builds(ModelConfig, preset=st.sampled_from(sorted(PRESETS)), label=LABELS, overrides=OPTIM).filter(
        go_together
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda row: row.label,
)
EXPERIMENTS = st.builds(
    Experiment,
    name=st.just("experiment"),
    data=DATA,
    vocabulary=st.builds(VocabularyConfig, size=st.integers(5, 10**7), joint=st.booleans(), min_count=COUNT),
    train=TRAIN,
    regularization=REGULARIZATION,
    decode=st.builds(
        DecodeConfig,
        max_ratio=st.floats(0, 1000, exclude_min=True),
        length_penalties=st.sets(st.floats(0, 10), min_size=1, max_size=9).map(
            lambda grid: tuple(sorted(grid))
        ),
        length_normalization=st.sampled_from(["wu", "length", "both"]),
    ),
    bench=st.just(BenchConfig()),
    budget=st.just(BudgetConfig())
    | st.builds(
        BudgetConfig,
        match=st.sampled_from(["params", "flops", "time"]),
        reference=TEXT,
        amount=st.floats(0, 1e300),
    ),
    models=ROWS.map(tuple),
)


def written(experiment: Experiment) -> str:
    sections = {name: getattr(experiment, name) for name in SECTIONS}
    tables = [{"preset": row.preset, "label": row.label, **row.overrides} for row in experiment.models]
    return f"schema = {SCHEMA}\n\n{to_toml(sections, tables)}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(experiment=EXPERIMENTS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, experiment: Experiment):
    path = tmp_path_factory.getbasetemp() / "experiment.toml"
    path.write_bytes(written(experiment).encode())
    again = load_experiment(path)
    assert again == experiment
    assert [resolve_model(row) for row in again.models] == [resolve_model(row) for row in experiment.models]
    assert written(again) == written(experiment)


def test_the_row_written_out_in_full_means_the_same(tmp_path: Path):
    """A run's config.toml names every value, so a later change of a default does not change it."""
    kept = {name: resolve_model(ModelConfig(preset=name, label=name)).settings() for name in PRESETS}
    for preset, settings_of in kept.items():
        others = [
            name for name, found in kept.items() if name != preset and found.keys() == settings_of.keys()
        ]
        full = ModelConfig(
            preset=others[0] if others else preset,  # another preset's defaults
            label=preset,
            overrides={name: value for name, value in settings_of.items() if value is not None},
        )
        assert resolve_model(full).settings() == settings_of
