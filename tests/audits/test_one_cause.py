"""All audits together: one cause gives one finding, and what only looks wrong gives none."""

from __future__ import annotations

import pytest

from paceline.audits.run_judge import RunJudge
from paceline.records.observed_rank import GradientTaken, ModelMoved, StateRestored, TrainableChanged
from tests.audits.observed_events import (
    NAMES,
    collective,
    ended,
    fingerprint,
    group,
    job,
    optimizer,
    started,
    step,
    unwrapped,
    wrapped,
)

STEPS = (1, 2, 3, 5, 8)


def run(
    rank,
    make=step,
    *,
    before=(),
    model=True,
    differ=(),
    gradients=None,
    start=(),
    since=1,
    held=None,
    more=(),
    at_step=None,
):
    """A whole run of one rank: models, optimizer, steps with fingerprints, end."""
    if model:
        yield wrapped()
    yield from before
    yield fingerprint(rank, 0, "start", start, more=more)
    yield held or optimizer()
    for number in STEPS:
        if at_step is not None and number == since:
            yield at_step
        yield make(number)
        parted = differ if number >= since else ()
        yield fingerprint(rank, number, "gradients", parted if gradients is None else gradients, kind="gradient")
        yield fingerprint(rank, number, "state", parted, more=more)
    yield fingerprint(rank, STEPS[-1], "end", differ, more=more)
    yield ended(STEPS[-1])


def bypassing(rank):
    """Training goes round the wrapper."""
    return run(rank, unwrapped, differ=NAMES)


def never_wrapped(rank):
    """No model is wrapped."""
    return run(rank, unwrapped, model=False, differ=NAMES, held=optimizer(wrapped=0, outside=list(NAMES)))


def loss_outside(rank):
    """A loss with a weight that no wrapper has."""
    held = optimizer(parameters=4, outside=["Loss/weight"])
    return run(rank, differ=["Loss/weight"], more=["Loss/weight"], gradients=(), held=held)


def critic_outside(rank):
    """A second network that no wrapper has, with an optimizer of its own."""
    held = optimizer(parameters=3, wrapped=0, outside=["Critic/weight"])
    return run(rank, unwrapped, differ=["Critic/weight"], more=["Critic/weight"], held=held, before=[optimizer(1)])


def unfreezing(rank):
    """A parameter is unfrozen after wrapping."""
    changed = TrainableChanged(number=0, step=3, added=["fc2.weight"], removed=[])
    return run(rank, differ=["fc2.weight"], since=3, at_step=changed)


def off_by_one(rank):
    """The wrong micro-step is reduced."""

    def make(number):
        return step(number, forwards=2, backwards=2, synchronized=[True, False])

    return run(rank, make, differ=NAMES)


def by_autograd_grad(rank):
    """Gradients that DDP does not see."""
    taken = GradientTaken(step=0, parameters=3)
    return run(rank, lambda number: step(number, backwards=0), differ=NAMES, before=[taken])


def shuffled(rank):
    """Each rank registers its parameters in another order."""
    return [wrapped(order=str(rank)), *list(run(rank, differ=NAMES, start=NAMES, gradients=()))[1:]]


def restored(rank):
    """Rank 0 alone loads a model in the middle of the run."""
    event = StateRestored(what="model", name="Net", step=2, after_wrap=True)
    return run(rank, differ=NAMES, gradients=(), since=3, at_step=event if rank == 0 else None)


def converted(rank):
    """A conversion replaces the parameters, which changes the trainable set too."""

    def events():
        yield ModelMoved(number=0, step=2, replaced=3, converted=0)
        yield TrainableChanged(number=0, step=3, added=list(NAMES), removed=list(NAMES))

    first, second = events()
    found = list(run(rank, differ=NAMES, since=3, at_step=second))
    return [*found[:-14], first, *found[-14:]]


def other_rate(rank):
    """Each rank has its own learning rate."""
    return run(rank, lambda number: step(number, lr=[0.1 + rank]), differ=NAMES, gradients=())


def other_scale(rank):
    """Each rank has its own loss scale."""
    return run(rank, lambda number: step(number, loss_scale=1024.0 * (1 + rank)), differ=NAMES)


def unknown(rank):
    """Nothing says why the ranks differ."""
    return run(rank, differ=NAMES)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (bypassing, "DP102"),
        (never_wrapped, "DP103"),
        (loss_outside, "DP104"),
        (critic_outside, "DP104"),
        (unfreezing, "DP105"),
        (off_by_one, "DP106"),
        (by_autograd_grad, "DP107"),
        (shuffled, "DP108"),
        (restored, "DP109"),
        (converted, "DP116"),
        (other_rate, "DP131"),
        (other_scale, "DP133"),
        (unknown, "DP101"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_one_cause_gives_one_finding(make, code):
    """An error of the audit that knows it."""
    assert [(each.code, each.severity) for each in judged(job(make, 3))] == [(code, "error")]


def test_separate_worlds_give_one_finding():
    """Whatever else differs between them."""
    ranks = {rank: [started(rank), group(0, 1), *run(rank, unwrapped, model=False, differ=NAMES)] for rank in (0, 1)}

    assert [each.code for each in judged(ranks)] == ["DP113"]


def plain(rank):
    """A usual run."""
    return run(rank)


def two_networks(rank):
    """The discriminator's gradients from the generator's step stay local, and are zeroed before its own."""
    return [wrapped(1, model="Critic"), *run(rank, gradients=["1/0.weight"])]


def local_sgd(rank):
    """Parameters are averaged at every fourth step."""
    return run(
        rank,
        lambda number: step(number, synchronized=[False], own_averages=number % 4 == 0),
        differ=NAMES,
        before=[collective(on="parameters", step=4)],
    )


def reduced_by_hand(rank):
    """No wrapper, and gradients that the script averages."""
    return run(rank, lambda number: unwrapped(number, own_reductions=3), model=False)


def reduced_by_hand_within_no_sync(rank):
    """A wrapper that is told not to reduce."""
    return run(rank, lambda number: step(number, synchronized=[False], own_reductions=3))


def ascent_within_no_sync(rank):
    """SAM with a local first pass, or accumulation."""
    return run(rank, lambda number: step(number, forwards=2, backwards=2, synchronized=[False, True]))


def second_loss(rank):
    """A second backward pass after one forward pass; the ranks agree."""
    return run(rank, lambda number: step(number, backwards=2, backwards_unwrapped=1))


def sharded_optimizer(rank):
    """Gradients are reduced within the step, and each rank has a part of the state."""
    found = list(run(rank, gradients=NAMES))
    return [*found, fingerprint(rank, 8, "state", ["fc1.weight:exp_avg"], kind="optimizer")]


def frozen_backbone(rank):
    """The optimizer holds parameters that do not train."""
    held = optimizer(parameters=4, wrapped=3, outside=["backbone.weight"], without_gradient=1)
    return run(rank, held=held, more=["backbone.weight"])


def best_checkpoint_on_rank_0(rank):
    """Rank 0 loads it after the last step."""
    found = list(run(rank))[:-2]
    restored = StateRestored(what="model", name="Net", step=8, after_wrap=True)
    return [*found, *[restored] * (rank == 0), fingerprint(rank, 8, "end", NAMES), ended(8)]


@pytest.mark.parametrize(
    "make",
    [
        plain,
        two_networks,
        local_sgd,
        reduced_by_hand,
        reduced_by_hand_within_no_sync,
        ascent_within_no_sync,
        second_loss,
        sharded_optimizer,
        frozen_backbone,
        best_checkpoint_on_rank_0,
    ],
    ids=lambda value: value.__name__,
)
@pytest.mark.parametrize("world", [1, 3])
def test_what_only_looks_wrong_gives_no_finding(make, world):
    """Neither errors nor warnings."""
    assert judged(job(make, world)) == []


def judged(ranks):
    """Errors and warnings of all audits."""
    judge = RunJudge()
    for rank, events in ranks.items():
        for event in events:
            judge.feed(rank, event)
    judge.finish()
    assert judge.failed == {}
    return [each for each in judge.findings() if each.severity != "info"]
