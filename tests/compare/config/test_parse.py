"""Experiments from TOML files: defaults, overrides, grids, and one-line errors that name the nearest."""

import runpy
from itertools import product
from pathlib import Path

import pytest

from compare.cli import main
from compare.config import FOLDERS
from compare.config.parse import SCHEMA, load_experiment, to_toml
from compare.config.resolve import resolve_model, resolve_models
from compare.config.sections import SECTIONS, BudgetConfig
from compare.models.presets import PRESETS
from tests.conftest import TINY
from tests.kits.common import ROOT, Refusal

CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
ROW = '[[models]]\npreset = "lstm"\n'
TWO = f'{ROW}dropout = 0.2\n[[models]]\npreset = "transformer"\nlabel = "big.1"\n'
MAY_DIFFER = {"d_model", "num_heads", "embedding_size", "ffn_size", "hidden_size", "encoder_size"} | {
    *("encoder_layers", "decoder_layers", "num_layers"),
    *("dropout", "attention_dropout", "variational", "tie", "learning_rate", "schedule", "warmup_updates"),
    "attention_warmup",
}
"""Sizes, regularisation, what a joint vocabulary allows, the optimizer, and how training begins."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "e.toml").write_text(TWO)
    return tmp_path / "e.toml"


def settings(path: Path, *overrides: str) -> dict[str, dict[str, object]]:
    runs = resolve_models(load_experiment(path, ["train.device=cpu", *overrides]))
    return {run.label: {"preset": run.preset, **run.model.settings()} for run in runs}


def refusal_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        resolve_models(load_experiment(path, overrides), str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_experiment_resolves(config: Path):
    """A model with the label of a preset has its mechanisms; one with others has a label of its own."""
    experiment = load_experiment(config.stem)
    assert experiment == load_experiment(config)
    for row in experiment.models:
        values = resolve_model(row, str(config)).settings()
        assert {name: values[name] for name in row.overrides} == row.overrides
        assert experiment.vocabulary.joint or values["tie"] != "all"
        if row.label in PRESETS:
            assert row.label == row.preset
            assert row.overrides.keys() <= MAY_DIFFER


def test_no_budget_is_one_setting(path: Path):
    path.write_text(f'[budget]\nmatch = "params"\nreference = "lstm"\n{ROW}')
    assert load_experiment(path, ["budget.match=none"]).budget == BudgetConfig()


def test_a_byte_order_mark_is_no_text(path: Path):
    path.write_text("\ufeff" + ROW, encoding="utf-8")
    assert [row.label for row in load_experiment(path).models] == ["lstm"]


def test_defaults_are_those_of_the_classes_and_of_the_preset(path: Path):
    path.write_text("".join(f'[[models]]\npreset = "{name}"\n' for name in PRESETS))
    experiment = load_experiment(path)
    assert all(getattr(experiment, name) == kind() for name, kind in SECTIONS.items())
    assert [row.label for row in experiment.models] == list(PRESETS)
    for row in experiment.models:
        assert resolve_model(row) == PRESETS[row.preset].model


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("seeds = [1, 1]\n" + ROW, "seeds must be different"),
        ("seeds = [1, 2]\n[train]\nseed = 3\n" + ROW, "train.seed has no effect beside seeds"),
        ("[trian]\nseed = 1\n" + ROW, "unknown key 'trian'; did you mean 'train'?"),
        ("[train]\nmax_update = 1\n" + ROW, "'train.max_update'; did you mean 'train.max_updates'?"),
        ("[train]\ndropout = 1\n" + ROW, "'train.dropout'; it is a setting of each model"),
        ('[[models]]\npreset = "bahdanu"\n', "models.bahdanu: unknown preset 'bahdanu'; did you mean 'bahd"),
        (ROW + "max_updates = 8\n", "all models share it: use [train], or --set train.max_upd"),
        ('[[models]]\nlabel = "a"\n', "models[0]: no preset"),
        ("models = 3\n", "no [[models]]"),
        ("[models]\npreset = 'lstm'\n", "single brackets"),
        ("schema = 4\n" + ROW, f"its schema is 4, but this version of attnbench reads schema {SCHEMA}"),
        (ROW + "label = 'a/b'\n", "label 'a/b' names a folder"),
        (ROW + f"label = '{300 * 'a'}'\n", "at most 200 bytes"),
        (ROW + ROW + "label = 'LSTM'\n", "is given twice"),  # one folder on macOS and Windows
        (ROW + "hidden_size = 9\n", "even"),
        (ROW + "dropout = [0.1, 0.1]\n", "label 'lstm-dropout-0.1' is given twice"),
        (ROW + "schedule = 'liner'\n", "did you mean 'linear'?"),
        ('[data]\nroot = "C:\\Users\\me"\n' + ROW, "write / instead of"),
        ('[data]\nroot = "C:\\temp"\n' + ROW, "write / instead of"),  # a tab
        ("[data]\nsrc = de\n" + ROW, "put text in quotes"),
    ],
)
def test_a_mistake_in_a_file_is_named(path: Path, text: str, part: str):
    path.write_text(text)
    assert part in refusal_of(path)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("train.max_updates", "must look like section.key=value"),
        ("train.dropout=0.1", "--set 'models.*.dropout=VALUE'"),
        ("models.lstn.dropout=0.1", "no model is labelled 'lstn'; did you mean 'lstm'?"),
        ("models.lstm.drpout=0.1", "models.lstm: unknown key 'drpout'; did you mean 'dropout'?"),
        ("models.*.hidden_size=8", "models.big.1: unknown key 'hidden_size'"),  # the other model lacks it
        ("train.max_updates=5x", "max_updates must be int, found '5x'"),
        ("train.clip_norm=inf", "clip_norm must be finite"),
        ("train.average_every=5", "average must be at least 2 where average_every is set, found 1"),
        ("train.device=cuda:x", "device must be one of auto, cpu, cuda, cuda:N, found 'cuda:x'"),
        ("data.tgt=en", "src and tgt are both 'en'"),
        ("data.tgt=fr", "built-in corpus is en -> de"),
        ("decode.length_penalties=[0.5, 0.5]", "an increasing list, found [0.5, 0.5]"),
        ("regularization.consistency=rdrop", "none, r-drop, simcut, found 'rdrop'; did you mean 'r-drop'?"),
        ("regularization.consistency_weight=2", 'consistency_weight has no effect with consistency = "none"'),
        ("regularization.subword_sampling=0.1", "needs subwords: set vocabulary.kind"),
        ("budget.reference=lstm", "no effect without match"),
        ("models.lstm.preset=rnn", "label 'lstm' is the name of a preset other than 'rnn'"),
        ("train.budgets=[20,20]", "budgets must increase, found [20, 20]"),
        ("train.budgets=[0]", "budgets must be"),
        (
            "train.budgets=[5,20]",
            "must end before the smallest of train.budgets leaves the trunk, after 4 upd",
        ),
        ("train.budgets=[20]; train.patience=2", "patience = 2 could end the training before a budget"),
        ("train.budgets=[20]; models.lstm.schedule=cosine", 'schedule = "cosine" ends at one budget only'),
        ("train.decay=1", "decay must be"),
        ('scoring.pairs=[["a","b"]]', "pairs has no effect without baseline"),
        *(
            (f"scoring.baseline=a; scoring.pairs={text}", f"each pair once, found {pair}")
            for text, pair in (
                ('[["b","b"]]', "['b', 'b']"),
                ('[["b","a"]]', "['b', 'a']"),
                ('[["b","c"],["c","b"]]', "['c', 'b']"),
            )
        ),
        ('scoring.baseline=a; scoring.pairs=["b","c"]', "pairs must be"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(path: Path, override: str, part: str):
    assert part in refusal_of(path, *override.split("; "), "vocabulary.kind=words")


def test_overrides_win_over_the_file_and_the_last_one_over_all(path: Path):
    path.write_text(f"[train]\nmax_updates = 3\nseed = 4\n{TWO}")
    experiment = load_experiment(path, ["train.max_updates=5", "data.root=a b", "train.max_updates = 6"])
    assert (experiment.train.max_updates, experiment.train.seed, experiment.data.root) == (6, 4, "a b")
    before = settings(path)
    after = settings(path, "models.*.learning_rate=2e-4", "models.big.1.dropout=0.4", "models.lstm.cell=gru")
    expected = {label: {**model, "learning_rate": 2e-4} for label, model in before.items()}
    expected["big.1"]["dropout"] = 0.4
    expected["lstm"]["cell"] = "gru"
    assert after == expected
    assert settings(path, "models.lstm.dropout=0.4", "models.*.dropout=0.3")["lstm"]["dropout"] == 0.3
    assert settings(path, "models.big.1.preset=bahdanau")["big.1"]["preset"] == "bahdanau"


def test_of_the_two_lengths_of_training_that_of_the_command_line_counts(path: Path):
    """In a file both are a mistake."""
    path.write_text(f"[train]\nmax_updates = 90\nbudgets = [20]\n{ROW}")
    assert "max_updates = 90 has no effect beside budgets = [20]" in refusal_of(path)
    assert load_experiment(path, ["train.max_updates=30"]).train.budgets == ()
    assert load_experiment(path, ["train.budgets=[30]"]).train.max_updates == 30


def test_lists_make_one_model_per_combination(path: Path):
    path.write_text(TWO.replace("dropout = 0.2", 'dropout = [0.1, 0.2]\ncell = ["lstm", "gru"]'))
    models = settings(path)
    grid = {f"lstm-dropout-{d}-cell-{c}": (d, c) for d, c in product((0.1, 0.2), ("lstm", "gru"))}
    assert list(models) == [*grid, "big.1"]
    assert {label: (models[label]["dropout"], models[label]["cell"]) for label in grid} == grid
    overridden = settings(path, "models.lstm.cell=gru", "models.*.dropout=[0.3,0.4]")
    assert list(overridden) == [f"{name}-dropout-{d}" for name in ("lstm", "big.1") for d in (0.3, 0.4)]
    one = settings(path, "models.lstm-dropout-0.1-cell-gru.hidden_size=16")
    assert [label for label, values in one.items() if values.get("hidden_size") == 16] == [
        "lstm-dropout-0.1-cell-gru"
    ]


def test_what_is_written_is_read_back(path: Path):
    """A run's config.toml names every value, so a later change of a default does not change it."""
    tables = [
        {"preset": name, "label": name, **{k: v for k, v in preset.model.settings().items() if v is not None}}
        for name, preset in PRESETS.items()
    ]
    special = ['data.root=/a "b"\\\x7f\t漢', "decode.length_penalties=[0.5, 1]", "train.ema=1e-7"]
    experiment = load_experiment(path, special)
    path.write_text(to_toml({name: getattr(experiment, name) for name in SECTIONS}, tables))
    again = load_experiment(path)
    assert all(getattr(again, name) == getattr(experiment, name) for name in SECTIONS)
    assert [resolve_model(row) for row in again.models] == [preset.model for preset in PRESETS.values()]


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("corpus", "{folder}/corpus"),
        ("../a b/", "{parent}/a b"),
        ("", ""),
        ("~/corpus", "~/corpus"),
        ("/corpus/", "/corpus/"),
    ],
)
def test_a_root_in_a_file_is_relative_to_the_file_and_one_of_an_option_to_the_working_directory(
    root: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(TINY.format(root=root))
    monkeypatch.chdir(tmp_path)
    path = Path("deep/er/experiment.toml")
    assert load_experiment(path).data.root == expected.format(folder=folder, parent=folder.parent)
    runs = resolve_models(load_experiment(path, ["data.root=corpus"]))
    assert {run.data.root for run in runs} == {str(tmp_path / "corpus")}


def test_a_name_stands_for_the_shipped_file_unless_there_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # a folder is no experiment
    assert load_experiment("demo").name == "demo"
    (tmp_path / "demo").rmdir()
    (tmp_path / "demo").write_text('[[models]]\npreset = "gnmt"\n')
    assert [model.preset for model in load_experiment("demo").models] == ["gnmt"]
    message = refusal("run", "demmo")
    assert message.startswith("demmo: no such file, and attnbench ships no experiment of that name")
    assert "did you mean 'demo'?" in message
    assert refusal("run", "demo.toml").startswith("demo.toml: no such file; ")


def test_the_list_names_all_and_says_what_they_are(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--list"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in CONFIGS)
    assert all(len(line.split()) > 4 for line in lines)
    assert FOLDERS[0] == ROOT / "compare" / "configs"  # where pyproject.toml puts them in the wheel
    assert '"configs" = "compare/configs"' in (ROOT / "pyproject.toml").read_text()


def test_the_page_of_settings_is_that_of_the_code():
    regenerate = runpy.run_path(str(ROOT / "benchmarks" / "reference.py"))["regenerate"]
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert "| `log_every` " in page
    assert regenerate(page) == page, "run: python benchmarks/reference.py"
    assert regenerate(page.replace("| `log_every` ", "| `log` ")) == page
