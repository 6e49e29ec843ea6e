"""What holds for every probe: the script never feels it, whatever happens inside it."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.optim.swa_utils
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, lr_scheduler
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.data import dataloader as machinery

from paceline.audits.catalog import AUDITS
from paceline.observe.attach import all_probes
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.sinks import MemorySink
from paceline.records.observed import NotObserved
from paceline.records.observed_rank import SIGNALS
from tests.observe.watched import group_of_one

PROBES = [each.signal for each in all_probes()]


def train(folder: Path) -> dict[str, torch.Tensor]:
    """A small training that uses everything which probes look at; gives its final weights."""
    torch.manual_seed(5)
    with group_of_one(folder):
        model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 2)))
        optimizer = SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 10)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        data = TensorDataset(torch.randn(12, 4))
        sampler = DistributedSampler(data, 1, 0)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for (batch,) in DataLoader(data, batch_size=4, sampler=sampler):
                optimizer.zero_grad()
                scaler.scale(model(batch).square().mean()).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
            with torch.no_grad():
                for (batch,) in DataLoader(data, batch_size=4):
                    model(batch)
            dist.all_reduce(torch.ones(1))
            torch.save(model.state_dict(), folder / "weights.pt")
            model.load_state_dict(torch.load(folder / "weights.pt"))
        model.float()
        return {name: each.clone() for name, each in model.module.state_dict().items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights without any probe."""
    return train(tmp_path_factory.mktemp("plain"))


@contextlib.contextmanager
def observed(session: Session) -> Iterator[Session]:
    """A session among few objects."""
    gc.freeze()
    try:
        with session:
            yield session
    finally:
        gc.unfreeze()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def kinds(sink: MemorySink) -> Counter[str]:
    """How many events of each type, without failures."""
    return Counter(type(each).__name__ for each in sink.events if not isinstance(each, NotObserved))


class Saboteur(Session):
    """Has the n-th function of one probe that is called at a patched place or an announcement raise an exception.

    Args:
        signal: of the probe.
        victim: which of its functions, in the order in which they are registered; None for none of them.

    Attributes:
        called: numbers of functions that were called; -1 for those that come through `run`.
    """

    def __init__(self, signal: str, victim: int | None) -> None:
        self.signal, self.victim = signal, victim
        self.functions = self.raised = 0
        self.called: set[int] = set()
        super().__init__(MemorySink(), all_probes())

    def _sabotaged(self, probe: Probe, function: Callable | None) -> Callable | None:
        if function is None or probe.signal != self.signal:
            return function
        number, self.functions = self.functions, self.functions + 1

        def fails(*args, **kwargs):
            self.called.add(number)
            if number != self.victim:
                return function(*args, **kwargs)
            self.raised += 1
            raise ZeroDivisionError("a bug in the probe")

        return fails

    def listen(self, probe, topic, function):
        """With the function that raises in its place."""
        return super().listen(probe, topic, self._sabotaged(probe, function))

    def patch(self, probe, owner, name, *, aliases=(), **functions):
        """Likewise."""
        functions = {when: self._sabotaged(probe, each) for when, each in functions.items()}
        super().patch(probe, owner, name, aliases=aliases, **functions)

    def guard(self, probe, function):
        """Likewise."""
        return super().guard(probe, self._sabotaged(probe, function))

    def run(self, probe, function, *args):
        """Audit events come this way: the last number stands for all of them."""

        def fails(*args):
            self.called.add(-1)
            if self.victim != -1:
                return function(*args)
            self.raised += 1
            raise ZeroDivisionError("a bug in the probe")

        super().run(probe, fails if probe.signal == self.signal else function, *args)


@pytest.mark.parametrize("signal", PROBES)
def test_an_exception_in_any_function_of_a_probe_leaves_the_training_as_it_is(
    signal: str, tmp_path_factory: pytest.TempPathFactory, expected
) -> None:
    """Weights are those without probes; that signal is reported once; the other probes go on."""
    undisturbed = Saboteur(signal, None)
    with observed(undisturbed):
        assert same(train(tmp_path_factory.mktemp("undisturbed")), expected)
    assert undisturbed.called, "the training uses nothing of this probe"
    for victim in sorted(undisturbed.called):
        session = Saboteur(signal, victim)
        with observed(session):
            weights = train(tmp_path_factory.mktemp("sabotaged"))

        assert same(weights, expected)
        failures = [each for each in session.sink.events if isinstance(each, NotObserved)]
        assert [(each.what, each.why) for each in failures] == [(signal, "ZeroDivisionError: a bug in the probe")]
        assert session.raised == 1
        lost = set(kinds(undisturbed.sink)) - set(kinds(session.sink))
        assert lost <= OWN[signal], f"{signal} took {lost - OWN[signal]} with it"


STEPS = {"ObservedStep", "OptimizerSeen", "StepTiming", "Fingerprint"}
OWN = {
    "groups": {"GroupMade", "ScriptEnded", "Fingerprint", "CollectivesCounted"},
    "fingerprints": {"Fingerprint"},
    "steps": STEPS,
    "wrappers": {"ModelWrapped", "InputSeen"},
    "backward": set(),
    "loaders": {"LoaderBegun", "LoaderEnded", "InputSeen", "Fingerprint"},
    "collectives": {"Collective", "CollectivesCounted"},
    "clips": set(),
    "scaling": set(),
    "schedulers": {"SchedulerSeen"},
    "restores": {"StateRestored"},
    "files": {"FileTouched"},
}
"""Events that only this probe emits, or that follow from what it announces."""


@pytest.mark.parametrize("signal", PROBES)
def test_a_name_that_this_torch_lacks_costs_one_signal(
    signal: str, tmp_path: Path, expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name stands in the report."""
    session = Session(MemorySink(), all_probes())
    probe = next(each for each in session.probes if each.signal == signal)
    monkeypatch.setattr(type(probe), "requires", (*probe.requires, (nn, "gone_in_torch_9")))
    with observed(session):
        weights = train(tmp_path)

    assert same(weights, expected)
    assert session.armed == [each for each in PROBES if each != signal]
    (missing,) = (each for each in session.sink.events if isinstance(each, NotObserved))
    assert missing.what == signal
    assert missing.why == f"torch {torch.__version__} has no gone_in_torch_9"


def test_a_probe_that_cannot_be_armed_is_taken_back(tmp_path: Path, expected, monkeypatch) -> None:
    """Whatever it had patched before it failed."""

    def fails(self, session):
        session.patch(self, nn.Module, "load_state_dict", after=lambda *_: 1 / 0)
        raise RuntimeError("not in this version")

    session = Session(MemorySink(), all_probes())
    restores = next(each for each in session.probes if each.signal == "restores")
    monkeypatch.setattr(type(restores), "arm", fails)
    original = nn.Module.load_state_dict
    with observed(session):
        assert nn.Module.load_state_dict is original
        assert same(train(tmp_path), expected)

    assert session.failed == {"restores": "RuntimeError: not in this version"}


def names_of_torch() -> dict[tuple[str, str], int]:
    """Identity of every attribute of the modules and classes that probes patch, and of torch's global hooks."""
    owners = [torch, torch.serialization, dist, c10d, nn.Module, nn.utils, nn.utils.clip_grad, torch.autograd]
    owners += [optimizers, optimizers.Optimizer, torch.optim, torch.optim.swa_utils, lr_scheduler, torch.amp.GradScaler]
    owners += [each for each in vars(lr_scheduler).values() if isinstance(each, type)]
    owners += [DataLoader, machinery, machinery._BaseDataLoaderIter, DistributedSampler, DistributedDataParallel, Join]
    owners += [torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"], nn.modules.module]
    found = {(each.__name__, name): id(value) for each in owners for name, value in vars(each).items()}
    hooks = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
    hooks += [nn.modules.module._global_forward_pre_hooks]
    return found | {("hooks", str(number)): len(each) for number, each in enumerate(hooks)}


def test_everything_of_torch_is_the_original_again_after_disarm(tmp_path: Path) -> None:
    """Each name of each module and class that probes patch, compared by identity."""
    train(tmp_path)  # what torch itself sets at first use
    before = names_of_torch()
    session = Session(MemorySink(), all_probes())
    session.arm()
    during = names_of_torch()
    train(tmp_path / "..")
    session.disarm()
    after = names_of_torch()

    assert len({name for name in before if during[name] != before[name]}) > 50
    assert {name for name in before | after if after.get(name) != before.get(name)} == set()


def test_a_function_that_the_script_patched_as_well_stays_the_scripts() -> None:
    """What stands there at the end is not ours to replace."""
    session = Session(MemorySink(), all_probes())
    original = nn.Module.load_state_dict
    session.arm()
    ours = nn.Module.load_state_dict

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs)

    nn.Module.load_state_dict = theirs
    try:
        session.disarm()
        assert nn.Module.load_state_dict is theirs
        model = nn.Linear(4, 2)
        model.load_state_dict(model.state_dict())
    finally:
        nn.Module.load_state_dict = original

    assert [each for each in session.sink.events if type(each).__name__ == "StateRestored"] == []


def test_signals_are_those_that_reports_know_and_audits_need() -> None:
    """One probe for each, but for the output, which the launcher compares."""
    assert len(set(PROBES)) == len(PROBES)
    assert {*PROBES, "output"} == set(SIGNALS)
    assert {need for audit in AUDITS for need in audit.needs} <= set(SIGNALS)


class Stop(Exception):  # noqa: N818
    """What a user's own handler of a signal raises."""


def raise_stop(number, frame):
    """As handlers for time limits do."""
    raise Stop


def delegate(*args):
    """A handler that does not name its arguments, and raises further down."""
    raise_stop(*args)


@pytest.mark.parametrize(
    ("handler", "error"),
    [(signal.default_int_handler, KeyboardInterrupt), (raise_stop, Stop), (delegate, Stop)],
    ids=["interrupt", "own", "delegated"],
)
@pytest.mark.parametrize("where", ["patch", "announcement"])
def test_signals_that_arrive_inside_a_probe_reach_the_user(where: str, handler, error) -> None:
    """The probe is not at fault: it goes on where the script does."""
    session = Session(MemorySink(), all_probes())
    times = []

    def interrupted(*_):
        if not times:
            times.append(1)
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(1000):  # Python runs handlers between two instructions
                pass

    probe = next(each for each in session.probes if each.signal == "steps")
    with observed(session):
        if where == "patch":
            session.patch(probe, nn.utils.clip_grad, "clip_grad_norm_", aliases=(nn.utils,), before=interrupted)
        else:
            session.listen(probe, Topic.STEP_BEGINS, interrupted)
        model = nn.Linear(4, 2)
        optimizer = SGD(model.parameters(), 0.1)

        def step():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with pytest.raises(error):
                step()
        finally:
            signal.signal(signal.SIGUSR1, before)
        optimizer.step()

    assert session.failed == {}
    assert session.progress.step == 1


def test_what_the_users_own_code_raises_when_a_probe_calls_it_does_not_reach_the_user() -> None:
    """A property of a sampler of batches that only works later."""

    class Lazy:
        def __iter__(self):
            return iter([[0, 1]])

        @property
        def batch_size(self):
            raise RuntimeError("not before the first epoch")

    session = Session(MemorySink(), all_probes())
    with observed(session):
        batches = list(DataLoader([1.0, 2.0], batch_sampler=Lazy()))

    assert len(batches) == 1
    assert session.failed == {"loaders": "RuntimeError: not before the first epoch"}


def test_a_sink_that_fails_ends_observation_and_not_the_script(tmp_path: Path, expected) -> None:
    """As a ring whose memory is gone."""

    class Broken(MemorySink):
        def emit(self, event):
            raise OSError("gone")

    with observed(Session(Broken(), all_probes())) as session:
        assert same(train(tmp_path), expected)

    assert not session.on


def generators() -> tuple[object, ...]:
    """Everything from which random numbers come on the host."""
    numpy = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpy[1].tolist(), numpy[2]


def test_random_states_are_those_without_probes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of torch, NumPy and Python: probes draw nothing."""
    states = []
    for probes in ([], all_probes()):
        random.seed(1)
        np.random.seed(1)
        with observed(Session(MemorySink(), probes)):
            train(tmp_path_factory.mktemp("random"))
        states.append(generators())

    assert states[0] == states[1]


def test_warnings_of_torch_name_the_line_of_the_script() -> None:
    """Functions that stand in for torch's are no frames for `warnings`."""
    with observed(Session(MemorySink(), all_probes())), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer = SGD(nn.Linear(4, 2).parameters(), 0.1)
        lr_scheduler.StepLR(optimizer, 1).step()  # before the optimizer's first step

    assert [each.filename for each in seen if "lr_scheduler.step()" in str(each.message)] == [__file__]
