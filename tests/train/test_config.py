"""One dataclass: flags, run.json and --resume agree, and what cannot be right is refused by name."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.cli.options import command_from
from paceline.records.errors import PacelineError
from paceline.settings.declare import FORMATS
from paceline.tasks.table import AUGMENTATIONS, BUILT_IN, Defaults, TaskOptions
from paceline.train.checks import BESIDE, check, check_takes_part, require_shared
from paceline.train.choices import AVERAGES, BATCH_NORMS, COMPRESSIONS, PRECISIONS, SAVE_SIGNALS, parse_augment
from paceline.train.config import TrainConfig, for_resume
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.resolve import resolve
from paceline.train.rules import RULES
from paceline.train.schedules import SHAPES, WARMUPS

FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}
POSITIVE = st.integers(1, 10**6)
LENGTH = st.integers(1, 999).map(str) | st.integers(1, 99).map("{}ep".format)
FACTOR = st.floats(0, 100)
NAME = st.text("abcdefghijklmnopqrstuvwxyz0123456789_/.", min_size=1, max_size=12)
VALUES: dict[str, st.SearchStrategy] = {
    "task": st.sampled_from(sorted(BUILT_IN)) | NAME,
    "workers": st.just("auto") | POSITIVE.map(str),
    "global_batch": POSITIVE,
    "accumulate": POSITIVE,
    "epochs": POSITIVE,
    "steps": POSITIVE,
    "keep_updates": st.booleans(),
    "lr": FACTOR,
    "lr_rule": st.sampled_from(sorted(RULES)),
    "base_batch": POSITIVE,
    "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
    "momentum": st.floats(0, 0.999),
    "nesterov": st.booleans(),
    "beta1": st.floats(0, 0.999),
    "beta2": st.floats(0, 0.9999),
    "eps": st.floats(1e-12, 1),
    "trust": st.floats(1e-6, 1),
    "weight_decay": FACTOR,
    "clip_norm": st.floats(0.01, 100),
    "schedule": st.sampled_from(sorted(SHAPES)),
    "warmup": LENGTH,
    "warmup_shape": st.sampled_from(WARMUPS),
    "warmup_from": st.floats(0.01, 1),
    "cooldown": st.floats(0.01, 1),
    "decay_at": st.sampled_from(["0.5", "0.3,0.6", "0.25,0.5,0.75"]),
    "decay_factor": st.floats(0.01, 0.99),
    "grow_batch": st.booleans(),
    "max_batch": POSITIVE,
    "batch_norm": st.sampled_from(sorted(BATCH_NORMS)),
    "ghost_size": st.integers(2, 1000),
    "bn_momentum": st.floats(0.001, 1),
    "average": st.sampled_from(sorted(AVERAGES)),
    "ema_decay": st.floats(0, 0.9999),
    "swa_from": st.floats(0, 0.99),
    "compress": st.sampled_from(sorted(COMPRESSIONS)),
    "holdout": st.integers(0, 10**6),
    "train_samples": POSITIVE,
    "init_from": NAME,
    "noise_every": st.integers(0, 1000),
    "label_smoothing": st.floats(0, 0.999),
    "augment": st.lists(st.sampled_from(AUGMENTATIONS), min_size=1, unique=True).map(",".join) | st.just("none"),
    "width": st.floats(0.1, 20),
    "precision": st.sampled_from(PRECISIONS),
    "target": st.floats(0, 1).map("accuracy={}".format),
    "patience": POSITIVE,
    "eval_every": LENGTH,
    "monitor": st.just("none"),
    "monitor_samples": POSITIVE,
    "seed": st.integers(0, 2**63 - 1),
    "deterministic": st.booleans(),
    "resume": st.just("auto") | NAME,
    "checkpoint_every": LENGTH,
    "keep": POSITIVE,
    "run_dir": NAME,
    "data_dir": NAME,
    "loader_workers": st.integers(0, 64),
    "grace": FACTOR,
    "save_signal": st.sampled_from(sorted(SAVE_SIGNALS)),
    "tensorboard": st.booleans(),
    "format": st.sampled_from(FORMATS),
    "timings": st.booleans(),
}
GIVEN = st.fixed_dictionaries({"task": VALUES["task"]}, optional={k: v for k, v in VALUES.items() if k != "task"})


def as_flags(given: dict[str, Any]) -> list[str]:
    """What a user would type."""
    arguments = [given["task"]]
    for name, value in given.items():
        flag = name.replace("_", "-")
        if name == "task":
            continue
        arguments += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", f"{value}"]
    return arguments


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of it."""
    seen: list[dict[str, Any]] = []
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command_from(TrainConfig, seen.append, "help"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_every_field_is_tried_here() -> None:
    """A new setting must be added to these tests, with a help text and its kind."""
    assert VALUES.keys() == FIELDS.keys()
    for field in FIELDS.values():
        assert field.metadata["help"].endswith((".", "]"))
        assert isinstance(field.metadata["recipe"], bool)
    assert "" not in TrainConfig.groups()


@settings(max_examples=60)
@given(given=GIVEN)
def test_flags_settings_and_run_json_are_three_forms_of_the_same(given: dict[str, Any]) -> None:
    """Typed, parsed, made a config, written as JSON and read again: nothing is lost or changed."""
    values = parsed(as_flags(given))
    config = TrainConfig(**values)

    again = TrainConfig.from_dict(json.loads(json.dumps(dataclasses.asdict(config))))

    assert values == given
    assert again == config
    assert all(getattr(again, name) == value for name, value in given.items())


@settings(max_examples=60)
@given(given=GIVEN)
def test_legal_values_pass_and_resolving_twice_changes_nothing(given: dict[str, Any]) -> None:
    """What `check` accepts can be resolved; a resolved config holds no open setting and stays as it is."""
    of_others = (
        "optimizer",
        "momentum",
        "nesterov",
        "beta1",
        "beta2",
        "eps",
        "trust",
        "steps",
        "grow_batch",
        "lr_rule",
        "warmup_from",
        "warmup_shape",
    )
    given = {k: v for k, v in given.items() if k not in of_others}
    config = TrainConfig(**given)
    check(config)

    full = resolve(config, Defaults())

    assert resolve(full, Defaults(lr=123.0, schedule="cosine", optimizer="adamw")) == full
    for name in ("global_batch", "lr", "optimizer", "momentum", "weight_decay", "schedule", "warmup", "epochs"):
        assert getattr(full, name) is not None
    assert all(getattr(full, name) == value for name, value in given.items())


def test_a_tasks_defaults_fill_what_was_not_given() -> None:
    """Zero is given, too."""
    defaults = Defaults(32, 7, 0.4, "sgd", 0.8, 0.3, "linear", "2ep")

    full = resolve(TrainConfig("t", lr=0.0, momentum=0.0), defaults)

    assert (full.global_batch, full.epochs, full.lr, full.momentum) == (32, 7, 0.0, 0.0)
    assert (full.weight_decay, full.schedule, full.warmup, full.optimizer) == (0.3, "linear", "2ep", "sgd")
    assert full.steps is None


def test_steps_replace_epochs() -> None:
    """A task's default number of epochs does not come back."""
    full = resolve(TrainConfig("t", steps=9), Defaults(epochs=3))

    assert (full.steps, full.epochs) == (9, None)


def test_another_optimizer_brings_its_own_rate_and_no_momentum() -> None:
    """A rate that was tuned for SGD says nothing about AdamW."""
    full = resolve(TrainConfig("t", optimizer="adamw"), Defaults(lr=0.4, optimizer="sgd", momentum=0.9))

    assert (full.lr, full.momentum) == (OPTIMIZERS["adamw"].lr, 0.0)


@pytest.mark.parametrize("given", [{"momentum": 0.5}, {"nesterov": True}])
def test_what_the_tasks_own_optimizer_does_not_take_is_refused(given: dict[str, Any]) -> None:
    """Also when the user named no optimizer: it would be ignored in silence."""
    config = TrainConfig("t", **given)
    check(config)

    with pytest.raises(PacelineError, match="adamw does not take --"):
        resolve(config, Defaults(optimizer="adamw"))


@pytest.mark.parametrize(
    ("defaults", "flag"),
    [
        (Defaults(optimizer="adam"), "--optimizer adam"),
        (Defaults(schedule="steps"), "--schedule steps"),
        (Defaults(lr=-1.0), "--lr -1"),
        (Defaults(global_batch=0), "--global-batch 0"),
        (Defaults(warmup="long"), "--warmup long"),
    ],
)
def test_defaults_of_a_users_task_are_checked_like_flags(defaults: Defaults, flag: str) -> None:
    """They come from a file that anybody may write."""
    with pytest.raises(PacelineError) as caught:
        resolve(TrainConfig("t"), defaults)

    assert caught.value.what.startswith(flag)


BAD = {
    "global_batch": [0, -64],
    "accumulate": [0],
    "epochs": [0, -1],
    "steps": [0],
    "lr": [-0.1, float("nan"), float("inf")],
    "optimizer": ["adam", "SGD", ""],
    "momentum": [1.0, -0.1, float("nan")],
    "weight_decay": [-1e-9, float("inf")],
    "lr_rule": ["line", ""],
    "base_batch": [0],
    "beta1": [1.0, -0.1],
    "beta2": [1.0, float("nan")],
    "eps": [0.0, -1e-8],
    "trust": [0.0],
    "clip_norm": [0.0, float("inf")],
    "warmup_shape": ["cosine"],
    "warmup_from": [-0.1, 1.1],
    "cooldown": [0.0, 1.1],
    "decay_at": ["", "0.5,0.5", "0.9,0.1", "1", "0", "half"],
    "decay_factor": [0.0, 1.0],
    "max_batch": [0],
    "batch_norm": ["synced"],
    "ghost_size": [1, 0],
    "bn_momentum": [0.0, 1.1],
    "average": ["mean"],
    "ema_decay": [1.0, -0.1],
    "swa_from": [1.0, -0.1],
    "compress": ["int8"],
    "holdout": [-1],
    "schedule": ["cos", ""],
    "warmup": ["-1", "long", "1.5"],
    "label_smoothing": [1.0, -0.1, float("nan")],
    "augment": ["crop,spin", "Flip"],
    "width": [0.0, -1.0, float("nan")],
    "precision": ["fp16", "auto "],
    "target": ["accuracy", "accuracy=high"],
    "patience": [0],
    "eval_every": ["0", "0ep", "x"],
    "monitor": ["trace"],
    "monitor_samples": [0],
    "seed": [-1, 2**63],
    "checkpoint_every": ["0", "never"],
    "keep": [0],
    "loader_workers": [-1],
    "grace": [-1.0, float("inf")],
    "format": ["yaml"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_and_its_flag_is_named(name: str, value: Any) -> None:
    """With a hint that says what is legal, and exit code 2."""
    with pytest.raises(PacelineError) as caught:
        check(TrainConfig("digits", **{name: value}))

    flag = "--" + name.replace("_", "-")
    assert caught.value.what.startswith(f"{flag} ")
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_the_nearest_legal_value_is_offered() -> None:
    """And all of them are listed."""
    with pytest.raises(PacelineError) as caught:
        check(TrainConfig("t", schedule="cosin"))

    assert caught.value.hint == "did you mean cosine? legal values: constant, linear, cosine, wsd, step"


def test_settings_that_exclude_each_other_are_refused() -> None:
    """Steps and epochs; momentum and nesterov of an optimizer that has none; nesterov without momentum."""
    for values, words in (
        ({"steps": 3, "epochs": 3}, "--epochs and --steps"),
        ({"optimizer": "adamw", "momentum": 0.9}, "does not take --momentum"),
        ({"optimizer": "adamw", "nesterov": True}, "does not take --nesterov"),
        ({"optimizer": "sgd", "beta1": 0.9}, "sgd does not take --beta1"),
        ({"optimizer": "sgd", "beta2": 0.0}, "sgd does not take --beta2"),
        ({"optimizer": "adamw", "trust": 0.1}, "adamw does not take --trust"),
        ({"steps": 3, "keep_updates": True}, "--keep-updates needs a length in epochs"),
        ({"steps": 3, "grow_batch": True}, "--grow-batch needs a length in epochs"),
        ({"keep_updates": True, "grow_batch": True}, "--keep-updates and --grow-batch exclude each other"),
        ({"grow_batch": True, "schedule": "cosine"}, "--grow-batch needs drops of the rate"),
        ({"warmup_shape": "constant", "warmup_from": 0.0}, "a constant warm-up from 0"),
    ):
        with pytest.raises(PacelineError, match=words):
            check(TrainConfig("t", **values))
    with pytest.raises(PacelineError, match="--nesterov needs a momentum"):
        resolve(TrainConfig("t", nesterov=True, momentum=0.0), Defaults())


def test_a_batch_must_give_each_worker_a_sample() -> None:
    """Exactly one each is enough."""
    require_shared(4, 4)

    with pytest.raises(PacelineError, match="a global batch of 3 cannot be shared by 4 workers") as caught:
        require_shared(3, 4)

    assert caught.value.hint == "--global-batch 4 or more, or at most 3 workers"


def test_each_micro_batch_must_give_each_worker_a_sample() -> None:
    """32 micro-batches of 2 samples: of four workers two would never have one, in the whole run."""
    require_shared(128, 4, 32)

    with pytest.raises(PacelineError, match="of 64 cannot be shared by 4 workers in 32 micro-batches") as caught:
        require_shared(64, 4, 32)

    assert caught.value.hint == "--global-batch 128 or more, or at most 2 workers, or --accumulate 16"
    with pytest.raises(PacelineError, match="of 2 cannot be shared by 1 worker in 4 micro-batches") as caught:
        require_shared(2, 1, 4)
    assert caught.value.hint == "--global-batch 4 or more, or --accumulate 2"


TAKE_PART: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"base_batch": 32}, {"lr_rule": "linear"}),
    ({"base_batch": 32}, {"lr_rule": "none"}),
    ({"base_batch": 32}, {"keep_updates": True}),
    ({"max_batch": 640}, {"grow_batch": True}),
    ({"cooldown": 0.5}, {"schedule": "wsd"}),
    ({"decay_at": "0.5"}, {"schedule": "step"}),
    ({"decay_factor": 0.5}, {"schedule": "step"}),
    ({"ghost_size": 8}, {"batch_norm": "ghost"}),
    ({"ema_decay": 0.9}, {"average": "ema"}),
    ({"swa_from": 0.5}, {"average": "swa"}),
    ({"monitor_samples": 9}, {"monitor": "sharpness"}),
    ({"patience": 2}, {"target": "loss=0.1"}),
]


@pytest.mark.parametrize(("given", "beside"), TAKE_PART)
def test_a_setting_that_would_change_nothing_is_refused(given: dict[str, Any], beside: dict[str, Any]) -> None:
    """Silence would be taken for effect; beside what it belongs to it passes, and the hint names that."""
    check_takes_part({"task": "digits", **given, **beside})
    ((name, _),) = given.items()
    ((other, _),) = beside.items()

    with pytest.raises(PacelineError) as caught:
        check_takes_part({"task": "digits", **given})

    assert caught.value.what == f"--{name.replace('_', '-')} takes no part in this training"
    assert f"--{other.replace('_', '-')}" in caught.value.hint


def test_settings_of_another_choice_take_no_part_either() -> None:
    """Every one of the table is tried here; the schedule of a user's task is not known before its file is run."""
    assert {name for values, _ in TAKE_PART for name in values} == BESIDE.keys()
    for values in ({"ema_decay": 0.9, "average": "swa"}, {"ghost_size": 8, "batch_norm": "sync"}):
        with pytest.raises(PacelineError, match="takes no part"):
            check_takes_part({"task": "digits", **values})
    check_takes_part({"task": "mine.py", "cooldown": 0.5})
    with pytest.raises(PacelineError, match="--cooldown takes no part"):
        check_takes_part({"task": "mine.py", "cooldown": 0.5, "schedule": "step"})


def test_a_beginning_of_the_warm_up_needs_a_warm_up() -> None:
    """The task may have one of its own."""
    config = TrainConfig("t", warmup_from=0.1)

    assert resolve(config, Defaults(warmup="5")).warmup_from == 0.1
    with pytest.raises(PacelineError, match="--warmup-from takes no part"):
        resolve(config, Defaults())
    with pytest.raises(PacelineError, match="--warmup-shape takes no part"):
        resolve(TrainConfig("t", warmup_shape="constant"), Defaults(warmup="0ep"))


def test_augmentations_are_read_as_names() -> None:
    """Spaces and none are allowed."""
    assert parse_augment("crop, flip") == ("crop", "flip")
    assert parse_augment("none") == parse_augment("") == ()


def test_what_reaches_into_the_task_are_its_options() -> None:
    """By the same names."""
    config = TrainConfig("t", label_smoothing=0.1, augment="erase", width=2.0, data_dir="d")

    assert config.task_options == TaskOptions(0.1, ("erase",), 2.0, "d")


STORED = resolve(TrainConfig("digits", epochs=3, precision="fp32", keep=2), BUILT_IN["digits"].defaults)
OTHER = {
    "task": "linear",
    "workers": "3",
    "global_batch": 32,
    "accumulate": 2,
    "keep_updates": True,
    "lr": 0.5,
    "lr_rule": "linear",
    "base_batch": 7,
    "optimizer": "adamw",
    "momentum": 0.1,
    "nesterov": True,
    "beta1": 0.5,
    "beta2": 0.5,
    "eps": 0.5,
    "trust": 0.5,
    "weight_decay": 0.5,
    "clip_norm": 1.0,
    "schedule": "linear",
    "warmup": "9",
    "warmup_shape": "constant",
    "warmup_from": 0.5,
    "cooldown": 0.5,
    "decay_at": "0.1",
    "decay_factor": 0.7,
    "grow_batch": True,
    "max_batch": 9,
    "batch_norm": "sync",
    "ghost_size": 9,
    "bn_momentum": 0.5,
    "average": "ema",
    "ema_decay": 0.5,
    "swa_from": 0.5,
    "compress": "bf16",
    "holdout": 7,
    "label_smoothing": 0.5,
    "augment": "crop",
    "width": 2.0,
    "precision": "fp64",
    "target": "loss=1",
    "patience": 5,
    "eval_every": "7",
    "monitor": "sharpness",
    "monitor_samples": 9,
    "seed": 5,
    "deterministic": True,
    "resume": "auto",
    "checkpoint_every": "5",
    "keep": 9,
    "run_dir": "r",
    "data_dir": "d",
    "loader_workers": 0,
    "grace": 1.0,
    "tensorboard": True,
    "format": "json",
    "timings": True,
}


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_resumed_run_takes_new_controls_and_refuses_another_recipe(name: str) -> None:
    """What decides the result stays; how it is carried out may change."""
    assert OTHER[name] != getattr(STORED, name)

    if FIELDS[name].metadata["recipe"]:
        with pytest.raises(PacelineError) as caught:
            for_resume(STORED, {name: OTHER[name]})
        had, asked = (TrainConfig.typed(name, value) for value in (getattr(STORED, name), OTHER[name]))
        assert caught.value.what == f"the run to be resumed has {had}, not {asked}"
        assert ("TASK" if name == "task" else "-" + name.replace("_", "-")) in asked
    else:
        assert for_resume(STORED, {name: OTHER[name]}) == dataclasses.replace(STORED, **{name: OTHER[name]})


@pytest.mark.parametrize("name", sorted(set(OTHER) - {"resume", "run_dir"}))
def test_a_resumed_run_may_be_told_again_what_it_has(name: str) -> None:
    """The user's old command with --resume added works."""
    assert for_resume(STORED, {name: getattr(STORED, name)}) == STORED


def test_a_run_may_be_made_longer() -> None:
    """In epochs, or in steps, which then replace them."""
    assert for_resume(STORED, {"epochs": 9}) == dataclasses.replace(STORED, epochs=9)
    assert for_resume(STORED, {"steps": 99}) == dataclasses.replace(STORED, epochs=None, steps=99)
    assert for_resume(for_resume(STORED, {"steps": 99}), {"epochs": 4}) == dataclasses.replace(STORED, epochs=4)


def test_a_run_whose_batch_grows_keeps_its_length() -> None:
    """Where it grew depends on the length; steps that are done would mean other samples."""
    growing = dataclasses.replace(STORED, grow_batch=True, schedule="step")

    assert for_resume(growing, {"epochs": 3}) == growing
    with pytest.raises(PacelineError, match="a run whose batch grows cannot be made longer"):
        for_resume(growing, {"epochs": 9})


def test_an_automatic_precision_stays_what_it_came_to() -> None:
    """Also on a machine where auto would be something else."""
    assert for_resume(STORED, {"precision": "auto"}).precision == "fp32"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"task": "t", "colour": 1, "shape": 2}, "unknown to this version: colour, shape"),
        ({"lr": 0.1}, "no task is named"),
        ({"task": "t", "lr": "fast"}, "Expected `float | null`, got `str` - at `$.lr`"),
        ({"task": "t", "steps": 1.5}, "Expected `int | null`, got `float` - at `$.steps`"),
    ],
)
def test_settings_of_a_run_that_cannot_be_read_are_refused(values: dict[str, Any], why: str) -> None:
    """Unknown ones may have decided the result; wrong types come from an edited file."""
    with pytest.raises(PacelineError, match="the run's settings cannot be read") as caught:
        TrainConfig.from_dict(values)

    assert caught.value.why == why


def test_settings_are_read_without_torch() -> None:
    """The command line checks them before it pays for the import."""
    script = "import sys, paceline.train.config; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
