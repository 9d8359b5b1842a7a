"""Settings: defaults, and one-line errors that name the place and the reason."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import resolve_model
from compare.config.sections import SECTIONS, Experiment, ModelConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from tests.kits.paths import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
ROW = '[[models]]\npreset = "lstm"\n'


def load(tmp_path: Path, text: str, *overrides: str) -> Experiment:
    path = tmp_path / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path, overrides)


def resolve_all(experiment: Experiment, path: Path) -> None:
    for row in experiment.models:
        resolve_model(row, str(path))


def refusal(tmp_path: Path, text: str, *overrides: str) -> str:
    """The message with which ``text`` is refused, on reading or on resolving its rows."""
    path = tmp_path / "experiment.toml"
    with pytest.raises(ValueError, match=r"\S") as caught:
        resolve_all(load(tmp_path, text, *overrides), path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_resolves(path: Path):
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    for row in experiment.models:
        resolved = resolve_model(row, str(path))
        settings = resolved.settings()
        assert {name: settings[name] for name in row.overrides} == row.overrides
        if not experiment.vocabulary.joint:
            assert settings["tie"] != "all"


@pytest.mark.parametrize("preset", PRESETS)
def test_defaults_are_those_of_the_classes(tmp_path: Path, preset: str):
    experiment = load(tmp_path, f'[[models]]\npreset = "{preset}"\n')
    for name, kind in SECTIONS.items():
        assert getattr(experiment, name) == kind()
    resolved = resolve_model(experiment.models[0])
    assert resolved.architecture == PRESETS[preset].architecture
    assert resolved.optim == PRESETS[preset].optim
    assert experiment.models[0].label == preset


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[trian]\nseed = 1\n" + ROW, ["unknown key 'trian'", "'train'"]),
        ("[train]\nmax_update = 1\n" + ROW, ["'train.max_update'", "'train.max_updates'"]),
        ("[qqq]\n" + ROW, ["'qqq'", "known are data, vocabulary"]),
        ('[[models]]\npreset = "bahdanu"\n', ["models.bahdanu", "did you mean 'bahdanau'?"]),
        ('[[models]]\npreset = "???"\nlabel = "a"\n', ["unknown preset '???'", "known are lstm"]),
        (ROW + "hiden_size = 8\n", ["models.lstm", "'hiden_size'", "'hidden_size'"]),
        (ROW + "num_heads = 8\n", ["unknown key 'num_heads'"]),  # of another architecture
        (ROW + "seed = 8\n", ["unknown key 'seed'"]),  # a row overrides no shared setting
        ('[[models]]\nlabel = "a"\n', ["models[0]: no preset"]),
        ("[[models]]\npreset = 3\n", ["models[0]: no preset"]),
        ("models = 3\n", ["no [[models]]"]),
        ("models = []\n", ["no [[models]]"]),
        ("", ["no [[models]]"]),
        ("train = 3\n" + ROW, ["train must be a table", "3"]),
        ("[train\n", ["not TOML"]),
    ],
)
def test_a_misspelt_name_is_named_with_the_nearest(tmp_path: Path, text: str, parts: list[str]):
    message = refusal(tmp_path, text)
    assert message.startswith(str(tmp_path / "experiment.toml"))
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("train.seed = true", ["must be int", "True"]),
        ("train.seed = 1.0", ["must be int", "1.0"]),
        ('train.seed = "1"', ["must be int", "'1'"]),
        ("train.seed = [1]", ["must be int"]),
        ("train.clip_norm = true", ["must be float"]),
        ("train.clip_norm = inf", ["finite"]),
        ("decode.length_penalties = [0.5, nan]", ["length_penalties must be", "nan"]),
        ("decode.length_penalties = 'x'", ["length_penalties must be float", "'x'"]),
        ("decode.length_penalties = [[0.5]]", ["length_penalties must be float", "[0.5]"]),
        ("vocabulary.joint = 1", ["must be bool"]),
        ("vocabulary.joint = 'yes'", ["must be bool"]),
        ("data.root = 3", ["must be str"]),
        ("train.seed = -1", ["seed", "at least 0", "-1"]),
        ("data.seed = -1", ["seed", "at least 0", "-1"]),
        ("train.patience = -1", ["patience", "at least 0"]),
        ("train.max_updates = 0", ["max_updates", "at least 1"]),
        ("train.average = 0", ["average", "at least 1"]),
        ("train.average_every = -1", ["average_every", "at least 0", "-1"]),
        ("train.average_every = 5", ["average must be at least 2", "where average_every is set, found 1"]),
        ("train.ema = 1.0", ["ema must be below 1", "1.0"]),
        ("train.log_every = 0", ["log_every", "at least 1"]),
        ("train.label_smoothing = 1.0", ["label_smoothing must be below 1, found 1.0"]),
        ("train.clip_norm = -1", ["clip_norm must be at least 0", "-1"]),
        ("regularization.consistency = 'rdrop'", ["none, r-drop, simcut", "did you mean 'r-drop'?"]),
        ("regularization.consistency_weight = 2", ["has no effect without consistency"]),
        ("regularization.cut = 0.1", ["cut has no effect", "set simcut"]),
        ("train.device = 'gpu'", ["auto, cpu, cuda", "'gpu'"]),
        ("train.device = 'cuda:x'", ["auto, cpu, cuda", "'cuda:x'"]),
        ("train.deterministic = 1", ["must be bool"]),
        ("decode.batch_tokens = -1", ["batch_tokens", "at least 0", "-1"]),
        ("train.precision = 'bf61'", ["did you mean 'bf16'?"]),
        ("vocabulary.kind = 'unigrams'", ["did you mean 'unigram'?"]),
        ("vocabulary.size = 4", ["size", "at least 5"]),
        ("decode.beam_size = 0", ["beam_size", "at least 1"]),
        ("decode.max_ratio = 0", ["max_ratio must be above 0"]),
        ("decode.length_penalties = [-0.5]", ["length_penalties must be at least 0"]),
        ("decode.length_penalties = [0.5, 11]", ["length_penalties", "at most 10", "11"]),
        ("decode.length_penalties = [0.5, 0.5]", ["length_penalties must rise, found 0.5, 0.5"]),
        ("decode.length_penalties = []", ["length_penalties must hold 1 to 50 numbers, found 0"]),
        ("decode.length_normalization = 'wo'", ["wu, length, both", "'wo'"]),
        ("bench.repeats = 0", ["repeats", "at least 1"]),
        ("data.src = 'de'", ["src and tgt are both 'de'"]),
        ("data.tgt = 'fr'", ["built-in corpus is en -> de", "data.root"]),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, setting: str, parts: list[str]):
    message = refusal(tmp_path, f"{setting}\n{ROW}")
    key, _, value = setting.partition(" = ")
    by_option = refusal(tmp_path, ROW, f"{key}={value}")  # the same value from the command line
    for part in (key.split(".")[0], *parts):
        assert part in message
        assert part in by_option


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("hidden_size = true", ["hidden_size", "must be int"]),
        ("hidden_size = 0", ["hidden_size", "at least 1"]),
        ("hidden_size = 9", ["hidden_size", "even"]),
        ("score = 'dot'", ["unknown key 'score'"]),  # the row has no attention
        ("tie = [1]", ["tie must be one of"]),
        ("dropout = 1", ["dropout", "below 1"]),
        ("learning_rate = 0", ["learning_rate must be above 0"]),
        ("learning_rate = nan", ["learning_rate must be above 0, found nan"]),
        ("warmup_updates = -1", ["warmup_updates", "at least 0"]),
        ("schedule = 'liner'", ["schedule must be one of"]),
        ("beta2 = 1.0", ["beta2"]),
        ("label = 'a/b'", ["label 'a/b'"]),
        ("label = '..'", ["label '..'"]),
        ("label = ''", ["label ''"]),
        ("label = 3", ["label must be str"]),
    ],
)
def test_a_row_that_cannot_be_is_refused(tmp_path: Path, override: str, parts: list[str]):
    message = refusal(tmp_path, f"{ROW}{override}\n")
    assert "models" in message
    for part in parts:
        assert part in message


def test_two_rows_need_two_labels(tmp_path: Path):
    assert "'lstm' is given twice" in refusal(tmp_path, ROW + ROW)
    assert len(load(tmp_path, ROW + ROW + 'label = "other"\n').models) == 2


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.max_updates", ["section.key=value"]),
        ("max_updates=3", ["section.key=value"]),
        ("train.=3", ["section.key=value"]),
        ("trian.seed=3", ["'trian'", "'train'"]),
        ("train.sed=3", ["'train.sed'", "'train.seed'"]),
        ("models.preset=lstm", ["models.LABEL.key=value"]),
        ("train.max_updates=5x", ["must be int", "'5x'"]),
    ],
)
def test_a_bad_override_is_refused(tmp_path: Path, override: str, parts: list[str]):
    message = refusal(tmp_path, ROW, override)
    for part in parts:
        assert part in message


def test_overrides_win_over_the_file_and_the_last_one_over_all(tmp_path: Path):
    text = f"[train]\nmax_updates = 3\nseed = 4\n{ROW}"
    experiment = load(
        tmp_path, text, "train.max_updates=5", "data.root=a b", "train.max_updates = 6", "train.device=cpu"
    )
    assert (experiment.train.max_updates, experiment.train.seed) == (6, 4)
    assert (experiment.data.root, experiment.train.device) == ("a b", "cpu")


@pytest.mark.parametrize("text", ["train = 3\n", "[[train]]\nseed = 1\n"])
def test_an_override_of_what_is_no_section_is_refused(tmp_path: Path, text: str):
    assert "train must be a table" in refusal(tmp_path, text + ROW, "train.seed=2")


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path):
    path = tmp_path / "experiment.toml"
    path.write_bytes(b'[data]\nroot = "\xff"\n')
    with pytest.raises(ValueError, match=r"experiment\.toml: not TOML"):
        load_experiment(path)


def test_a_size_that_cannot_be_built_is_refused_by_the_model():
    row = ModelConfig(
        preset="lstm", label="lstm", overrides={"tie": "all", "hidden_size": 4, "embedding_size": 4}
    )
    with pytest.raises(ValueError, match="joint"):
        build(resolve_model(row).architecture, 10, 11)
