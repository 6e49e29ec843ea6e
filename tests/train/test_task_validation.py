"""A task is tried before any worker starts: every field of it given a plausible wrong thing, and right tasks let by."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.parallel.placement import RankEnv
from paceline.records.errors import Exit
from paceline.records.validation import Refusal, Validation
from paceline.train.config import TrainConfig
from paceline.train.task_validation import validate

BASE = """
import numpy as np, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from paceline.tasks.task import Arrays, Defaults, Gathered, Loss, Task, accuracy

r = np.random.default_rng(0)
x = r.normal(size=(90, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64)

def make_model():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))

def loss(model, batch):
    z = model(batch[0])
    return Loss(F.cross_entropy(z, batch[1], reduction="sum"), len(batch[1]), z)

{more}

def task():
    fields = dict(name="mine", model=make_model, loss=loss, train_data=Arrays(x, y), eval_data=Arrays(x[:31], y[:31]),
                  metrics={{"accuracy": accuracy}}, defaults=Defaults(global_batch=24, epochs=2, lr=0.1))
    fields.update({change})
    return Task(**fields)
"""


@pytest.fixture(autouse=True)
def _no_traces():
    """Loading a file leaves its directory on the path, its module loaded, and torch with one thread."""
    path, modules, threads = list(sys.path), set(sys.modules), torch.get_num_threads()
    yield
    sys.path[:] = path
    torch.set_num_threads(threads)
    for name in set(sys.modules) - modules:
        if name.startswith("paceline_user_task_"):
            del sys.modules[name]


@pytest.fixture
def tried(tmp_path: Path):
    """Tries a task that differs from a right one in `change`, with `more` beside it."""

    def go(change: str = "", more: str = "", world: int = 2, text: str = BASE, **settings: Any) -> Validation:
        path = tmp_path / "my_task.py"
        path.write_text(text.format(change=change, more=textwrap.dedent(more)))
        return validate(TrainConfig(task=str(path), **settings), RankEnv(0, 0, world, world, 1))

    return go


def refused(found: Validation) -> Refusal:
    """The message."""
    assert found.refusal is not None, found
    return found.refusal


WRONG = {
    "name": ("name=''", "name is ''"),
    "name, a number": ("name=3", "name is an int, not a text"),
    "an instance": ("model=make_model()", "model is a Sequential that is already built"),
    "a class with arguments": ("model=nn.Linear", "model fails"),
    "nothing": ("model=lambda: None", "model returned None, not an nn.Module"),
    "a tensor": ("model=lambda: torch.zeros(3)", "model returned a tensor of shape (3,), not an nn.Module"),
    "nothing to train": ("model=nn.ReLU", "model returned a module that has nothing to train"),
    "lazy": ("model=lambda: nn.LazyLinear(2)", "model has a lazy layer without a shape"),
    "wrapped": ("model=lambda: nn.DataParallel(make_model())", "model returned a model in DataParallel"),
    "a module of torch": ("loss=nn.CrossEntropyLoss()", "loss is CrossEntropyLoss, which takes outputs and labels"),
    "its class": ("loss=nn.CrossEntropyLoss", "loss is CrossEntropyLoss, which takes outputs and labels"),
    "a function of torch": ("loss=F.cross_entropy", "loss fails"),
    "a text": ("loss='cross_entropy'", "loss is a str, not a function"),
    "one argument": ("loss=lambda model: 3", "loss fails"),
    "tensor": ("loss=lambda m, b: m(b[0]).sum()", "loss returned a tensor of shape (), not a Loss"),
    "tuple": ("loss=lambda m, b: (m(b[0]).sum(), 3)", "loss returned a tuple, not a Loss"),
    "rows": ("loss=lambda m, b: Loss(m(b[0]).sum(1), len(b[0]))", "loss returned a sum of shape (6,)"),
    "a float": ("loss=lambda m, b: Loss(m(b[0]).sum().item(), len(b[0]))", "loss returned a sum that is a float"),
    "detached": ("loss=lambda m, b: Loss(m(b[0]).sum().detach(), len(b[0]))", "loss does not depend on the model"),
    "whole": ("loss=lambda m, b: Loss(m(b[0]).argmax(1).sum(), len(b[0]))", "loss returned a sum of torch.int64"),
    "a count that is none": ("loss=lambda m, b: Loss(m(b[0]).sum(), None)", "loss returned a count that is None"),
    "a count of rows": ("loss=lambda m, b: Loss(m(b[0]).sum(), b[1])", "loss returned a count of shape (6,)"),
    "a negative count": ("loss=lambda m, b: Loss(m(b[0]).sum(), -1)", "loss returned the count -1"),
    "no count": ("loss=lambda m, b: Loss(m(b[0]).sum(), 0)", "loss returned the count 0 for a sum"),
    "a constant count": ("loss=lambda m, b: Loss(m(b[0]).sum(), 1)", "loss has a count that does not add up"),
    "other count": ("loss=lambda m, b: Loss(m(b[0]).sum(), 2 * len(b[0])), count='samples'", "loss counts 12 where"),
    "a loader": ("train_data=DataLoader(TensorDataset(torch.tensor(x)))", "train_data is a DataLoader"),
    "columns": ("train_data=(x, y)", "train_data is a tuple of columns"),
    "a list of columns": ("train_data=[torch.tensor(x), torch.tensor(y)]", "train_data is a list of columns"),
    "one array": ("train_data=x", "train_data is an array of shape (90, 6)"),
    "a generator": ("train_data=(row for row in x)", "train_data is a generator"),
    "a dict": ("train_data={'x': x}", "train_data is a dict"),
    "no samples": ("train_data=Arrays(x[:0], y[:0])", "train_data is empty"),
    "no eval data": ("eval_data=None", "eval_data is None"),
    "an empty list": ("eval_data=[]", "eval_data is empty"),
    "a path": ("eval_data='data.csv'", "eval_data is a str"),
    "a list of metrics": ("metrics=[accuracy]", "metrics is a list, not a dict"),
    "one metric": ("metrics=accuracy", "metrics is a function, not a dict"),
    "no metrics": ("metrics=None", "metrics is None, not a dict"),
    "a number as metric": ("metrics={'mae': 3}", "metrics['mae'] is an int, not a function"),
    "a metric that is a float": ("metrics={'mae': lambda o, b: 0.5}", "metrics['mae'] returned a float, not"),
    "a metric that is a tensor": ("metrics={'mae': lambda o, b: o.sum()}", "metrics['mae'] returned a tensor of"),
    "a triple": ("metrics={'mae': lambda o, b: (1, 2, 3)}", "metrics['mae'] returned a tuple of 3, not (sum, count)"),
    "rows in a metric": ("metrics={'mae': lambda o, b: (o.sum(1), 3)}", "metrics['mae'] returned a sum that is a"),
    "a metric of None": ("metrics={'mae': lambda o, b: (None, 3)}", "metrics['mae'] returned a sum that is None"),
    "a metric that fails": ("metrics={'mae': lambda o, b: o['logits']}", "metrics['mae'] fails"),
    "a metric with one argument": ("metrics={'mae': lambda o: o}", "metrics['mae'] fails"),
    "a mean metric": ("metrics={'mae': lambda o, b: (o.abs().mean(), len(o))}", "metrics['mae'] looks like a mean"),
    "a mean of means": ("metrics={'mae': lambda o, b: (o.abs().mean(), 1)}", "metrics['mae'] looks like a mean"),
    "rows that are none": ("metrics={'f1': Gathered(lambda o, b: 3, float)}", "metrics['f1'] has rows that are an int"),
    "too few rows": ("metrics={'f1': Gathered(lambda o, b: o[:1], float)}", "metrics['f1'] has rows of shape (1, 2)"),
    "a finish of rows": ("metrics={'f1': Gathered(lambda o, b: o, lambda o: o)}", "metrics['f1'] has a finish that"),
    "a finish that fails": ("metrics={'f1': Gathered(lambda o, b: o, lambda o: o.no)}", "metrics['f1'] fails"),
    "count": ("count='tokens'", "count is 'tokens'"),
    "scope": ("loss_scope='rank'", "loss_scope is 'rank'"),
    "defaults": ("defaults={'lr': 0.1}", "defaults is a dict"),
    "a text for a number": ("defaults=Defaults(lr='0.1')", "defaults.lr is '0.1', not a number"),
    "a fraction for a number": ("defaults=Defaults(epochs=1.5)", "defaults.epochs is 1.5, not a whole number"),
    "eval_batch": ("eval_batch=0", "eval_batch is 0"),
    "eval_batch, a text": ("eval_batch='all'", "eval_batch is 'all'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_named_with_its_line(case: str, tried) -> None:
    """What was expected stands in the hint."""
    change, words = WRONG[case]

    found = refused(tried(f"dict({change})"))

    assert words in found.what
    assert "my_task.py, line " in found.what
    assert found.hint
    assert found.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimizer='adamx'", "defaults.optimizer adamx is unknown"),
        ("schedule='cosin'", "defaults.schedule cosin is unknown"),
        ("lr=-1.0", "defaults.lr -1 is out of range"),
        ("global_batch=0", "defaults.global_batch 0 is out of range"),
        ("warmup='soon'", "defaults.warmup"),
    ],
)
def test_a_wrong_default_is_named_as_a_field_and_not_as_a_flag(change: str, words: str, tried) -> None:
    """Nobody has typed that flag."""
    found = refused(tried(f"dict(defaults=Defaults({change}))"))

    assert words in found.what


def test_a_field_that_does_not_exist_is_refused_with_the_nearest(tried) -> None:
    """As for flags."""
    found = refused(tried("dict(metric={})"))

    assert "my_task.py, line " in found.what
    assert "did you mean metrics?" in found.hint


DATASET = """
class Rows(Dataset):
    def __len__(self): return 90
    def __getitem__(self, i): return {item}
    {collate}
"""


@pytest.mark.parametrize(
    ("item", "collate", "words"),
    [
        ("x[i + 1], y[i + 1]", "", "IndexError"),
        ("(x[i, : 1 + i % 3], y[i])", "", "RuntimeError: stack expects each tensor to be equal size"),
        ("(x[i], y[i])", "def collate(self, samples): return samples['x']", "TypeError"),
        ("(x[i], y[i])", "def collate(self): return 3", "TypeError"),
        ("__import__('sys').exit(3)", "", "SystemExit"),
    ],
)
@pytest.mark.parametrize("field", ["train_data", "eval_data"])
def test_a_data_set_whose_batches_cannot_be_made_is_named(
    field: str, item: str, collate: str, words: str, tried
) -> None:
    """Items that raise, the last one alone too; samples that do not stack; a wrong collate function."""
    found = refused(tried(f"dict({field}=Rows())", DATASET.format(item=item, collate=collate)))

    assert f"{field} fails" in found.what
    assert words in found.why


def test_a_mean_in_place_of_a_sum_is_called_one(tried) -> None:
    """The likeliest slip, with any number of workers, also in the form that counts nothing."""
    for count in ("len(batch[1])", "1", "torch.tensor(1.0)"):
        more = f"def loss(model, batch): return Loss(F.cross_entropy(model(batch[0]), batch[1]), {count})"
        for world in (1, 2):
            found = refused(tried("{}", more, world))

            assert "loss looks like a mean where a sum is asked for" in found.what
            assert "line 19: " in found.what
            assert "reduction='sum'" in found.hint


CONTRASTIVE = """
def loss(model, batch):
    z = F.normalize(model(batch[0]), dim=1)
    return Loss(F.cross_entropy(z @ z.T / 0.1, torch.arange(len(z)), reduction="sum"), len(z), z)
"""


def test_a_loss_whose_samples_see_each_other_is_refused_where_batches_are_cut(tried) -> None:
    """One worker is well defined; where the task says that it is meant so, several are, too."""
    several = refused(tried("{}", CONTRASTIVE, 2))
    cut = refused(tried("{}", CONTRASTIVE, 1, accumulate=2))
    alone = tried("{}", CONTRASTIVE, 1)
    meant = tried("dict(loss_scope='per_rank')", CONTRASTIVE, 2)

    for found in (several, cut):
        assert "they see each other" in found.what
        assert 'loss_scope="per_rank"' in found.hint
    assert alone.refusal is None
    assert any("its samples see each other" in note for note in alone.notes)
    assert meant.refusal is None
    assert meant.notes == []


def test_a_term_that_each_batch_adds_once_is_told_as_such(tried) -> None:
    """A penalty on weights would count once for each worker and micro-batch."""
    more = """
    def loss(model, batch):
        z = model(batch[0])
        penalty = sum(p.square().sum() for p in model.parameters())
        return Loss(F.cross_entropy(z, batch[1], reduction="sum") + penalty, len(z), z)
    """
    found = refused(tried("{}", more))

    assert "once a batch, whatever its samples" in found.what


def test_random_numbers_in_the_loss_are_not_taken_for_coupled_samples(tried) -> None:
    """Noise as diffusion models draw it; a mean is found all the same."""
    more = """
    def loss(model, batch):
        z = model(batch[0] + torch.randn_like(batch[0]))
        return Loss(F.cross_entropy(z, batch[1], reduction="{}"), len(z), z)
    """
    right, wrong = tried("{}", more.format("sum")), tried("{}", more.format("mean"))

    assert right.refusal is None
    assert any("draws random numbers" in note for note in right.notes)
    assert "looks like a mean" in refused(wrong).what


PADDED = """
class Rows(Dataset):
    def __init__(self):
        self.rows = [torch.randn(1 + (7 * i) % 11, 3, generator=torch.Generator().manual_seed(i)) for i in range(90)]
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i], i % 2
    def collate(self, samples):
        lengths = torch.tensor([len(s[0]) for s in samples])
        rows = nn.utils.rnn.pad_sequence([s[0] for s in samples], batch_first=True)
        return rows, torch.tensor([s[1] for s in samples]), lengths

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)
    def forward(self, rows, lengths):
        mask = (torch.arange(rows.shape[1])[None] < lengths[:, None]) if {masked} else torch.ones(rows.shape[:2])
        return self.b((torch.tanh(self.a(rows)) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

def loss(model, batch):
    z = model(batch[0], batch[2])
    return Loss(F.cross_entropy(z, batch[1], reduction="{reduction}"), {count}, z)
"""


@pytest.mark.parametrize("masked", [True, False])
def test_padding_to_the_longest_sample_is_not_taken_for_coupled_samples(masked: bool, tried) -> None:
    """Also in a model that sees it: that is said, and not refused."""
    more = PADDED.format(masked=masked, reduction="sum", count="len(z)")
    found = tried("dict(model=Net, train_data=Rows(), eval_data=Rows())", more)

    assert found.refusal is None
    assert found.facts["additivity"] == "additive"
    assert sum("padding" in note for note in found.notes) == (not masked)


def test_a_count_of_padding_is_said_and_a_mean_over_padded_batches_is_found(tried) -> None:
    """The same data with a count of padded places, and with the mean."""
    change = "dict(model=Net, train_data=Rows(), eval_data=Rows())"
    padded = tried(change, PADDED.format(masked=True, reduction="sum", count="batch[0][..., 0].numel()"))
    mean = tried(change, PADDED.format(masked=True, reduction="mean", count="len(z)"))

    assert padded.refusal is None
    assert any("padding" in note for note in padded.notes)
    assert "looks like a mean" in refused(mean).what


def test_a_loss_that_is_not_finite_is_a_divergence_before_the_first_step(tried) -> None:
    """Nothing was trained, so there is nothing to go back to."""
    found = refused(tried("dict(train_data=Arrays(x * np.nan, y))"))

    assert "loss is nan on the first batch" in found.what
    assert "there is no checkpoint yet" in found.hint
    assert found.exit_code == Exit.DIVERGED


RIGHT = {
    "base": ("{}", ""),
    "a list of samples": ("dict(train_data=[(a, b) for a, b in zip(x, y)])", ""),
    "a tensor data set": ("dict(train_data=TensorDataset(torch.tensor(x), torch.tensor(y)))", ""),
    "one sample": ("dict(train_data=Arrays(x[:1], y[:1]), defaults=Defaults(global_batch=1))", ""),
    "no gradient in evaluation": (
        "dict(loss=quiet)",
        "def quiet(m, b):\n    with torch.set_grad_enabled(m.training):\n        return loss(m, b)",
    ),
    "a class as model": ("dict(model=Net)", "class Net(nn.Linear):\n    def __init__(self): super().__init__(6, 2)"),
    "weights as counts": ("dict(metrics={}, loss=lambda m, b: Loss((m(b[0])[:, 0] * b[1]).sum(), b[1].sum()))", ""),
    "a loss below zero": ("dict(metrics={}, loss=lambda m, b: Loss(-m(b[0]).square().sum(), len(b[0])))", ""),
    "a metric as a tensor of two": ("dict(metrics={'m': lambda o, b: torch.tensor([o.sum(), len(o)])})", ""),
    "a constant metric": ("dict(metrics={'rate': lambda o, b: (0.1, 1)})", ""),
    "no accuracy at all": ("dict(metrics={'m': lambda o, b: (0, 0)})", ""),
    "a gathered metric of two classes": (
        "dict(metrics={'auc': Gathered(lambda o, b: o, finish)})",
        "def finish(rows):\n    if len(rows) < 1000: raise ValueError('only one class')\n    return 1.0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_task_is_let_by_in_every_precision(case: str, precision: str, tried) -> None:
    """A false alarm costs more trust than a miss."""
    change, more = RIGHT[case]

    found = tried(change, more, 1, precision=precision)

    assert found.refusal is None
    assert found.facts.get("additivity", "additive") == "additive"


def test_a_metric_that_is_no_number_yet_is_noted(tried) -> None:
    """After some training it may be one."""
    found = tried("dict(metrics={'f1': lambda o, b: (float('nan'), len(o))})")

    assert found.refusal is None
    assert any("metrics['f1'] is nan" in note for note in found.notes)


@pytest.mark.parametrize(
    ("world", "settings", "words"),
    [
        (25, {}, "a global batch of 24 cannot be shared by 25 workers"),
        (1, {"holdout": 90}, "--holdout 90 leaves nothing to train on"),
        (1, {"train_samples": 91}, "--train-samples 91 is out of range"),
        (1, {"target": "acuracy=0.9"}, "--target acuracy is not measured"),
        (1, {"target": "accuracy=90"}, "--target accuracy=90 can never be reached"),
        (1, {"width": 2.0}, "does not take --width"),
        (1, {"batch_norm": "ghost", "ghost_size": 4, "bn_momentum": 0.5, "init_from": "nowhere"}, "nowhere"),
        (1, {"warmup_from": 0.5}, "--warmup-from takes no part in this training"),
    ],
)
def test_what_needs_no_worker_is_refused_without_one(world: int, settings: dict[str, Any], words: str, tried) -> None:
    """Settings that do not fit the task or its data."""
    assert words in refused(tried("{}", "", world, **settings)).what
