"""Which values differ between ranks."""

from __future__ import annotations

import ast

import pytest

from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.value_spread import Cause, Spread
from tests.check.rule_cases import script_of

TRAINING = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
data = Numbers()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DDP(nn.Linear(2, 1))

def mean_of(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()

def double(value):
    return 2 * value

class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

    @property
    def average(self):
        return self.total / self.count

meter = Meter()
steps = taken = 0
best = 0.0
for step, (x, y) in enumerate(loader):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    meter.update(loss.item())
    if loss.item() < 1:
        taken += 1
    steps += 1
    reduced = loss.detach()
    dist.all_reduce(reduced)
    best = max(best, loss.item())
    probe(QUESTION)
"""


def origin_of(question: str):
    """Where the value of a question in the training script comes from."""
    script = script_of(TRAINING.replace("QUESTION", question))
    (call,) = script.program.root.calls_by_name["probe"]
    assert isinstance(call, ast.Call)
    return LocalValues.of(script).origin(call.args[0])


@pytest.mark.parametrize(
    "question",
    [
        "loss",
        "loss.item() < 0.1",
        "double(loss)",
        "float('inf') if loss < 1 else 0.0",
        "meter.average",
        "best",
        "data.x[rank::world].mean()",
        "not torch.isfinite(loss)",
        "loss.item() / unknown_number",
    ],
)
def test_values_of_the_batch_are_local(question: str):
    """Losses, metrics and what is computed from them differ between ranks."""
    found = origin_of(question)

    assert found.spread is Spread.LOCAL
    assert found.cause is Cause.DATA


@pytest.mark.parametrize(
    "question", ["step", "steps", "len(loader)", "x.shape[0]", "world", "1 if steps > 3 else 2", "math_pi == 3.14", "3"]
)
def test_counts_are_not_local(question: str):
    """Steps and sizes are equal on all ranks, or not known to differ."""
    assert origin_of(question).spread in (Spread.EQUAL, Spread.UNKNOWN)


@pytest.mark.parametrize(
    "question",
    ["reduced", "reduced / world", "mean_of(loss)", "unknown_reduce(loss)", "accelerator.gather_for_metrics(loss)"],
)
def test_values_that_passed_a_collective_are_not_local(question: str):
    """A reduction makes a value equal, also within a function."""
    assert origin_of(question).spread in (Spread.REDUCED, Spread.UNKNOWN)


def test_a_counter_under_a_local_condition_is_local():
    """A counter that only some ranks increase differs."""
    assert origin_of("taken").spread is Spread.LOCAL


@pytest.mark.parametrize(
    ("question", "cause"),
    [
        ("time.time() - 3 > 10", Cause.CLOCK),
        ("os.path.exists('a')", Cause.FILES),
        ("rank == 0", Cause.RANK),
    ],
)
def test_the_cause_of_a_local_value_is_known(question: str, cause: Cause):
    """Messages name the reason: batch, clock, file system or rank."""
    found = origin_of(question)

    assert found.spread is Spread.LOCAL
    assert found.cause is cause


def test_a_value_of_an_unknown_function_is_unknown():
    """A function that cannot be read may reduce its argument."""
    assert origin_of("unknown(loss)").spread is Spread.UNKNOWN


def test_a_counter_behind_a_break_on_the_clock_is_not_local():
    """The break is the fault; the counter only follows it."""
    script = script_of(
        TRAINING.replace("    steps += 1", "    if time.time() > 10:\n        break\n    steps += 1").replace(
            "QUESTION", "steps > 3"
        )
    )
    (call,) = script.program.root.calls_by_name["probe"]

    assert not LocalValues.of(script).origin(call.args[0]).local


def test_what_is_put_into_a_list_counts():
    """A list of local losses is local."""
    case = TRAINING.replace("best = 0.0", "best, seen = 0.0, []").replace(
        "    steps += 1", "    seen.append(loss.item())"
    )
    script = script_of(case.replace("QUESTION", "sum(seen) / len(seen)"))
    (call,) = script.program.root.calls_by_name["probe"]

    assert LocalValues.of(script).origin(call.args[0]).local
