"""One observed process: holds the probes, keeps their failures away from the script, and lets them hear of each other.

Probes announce what happens (`announce`) and listen to what others announce (`listen`); see `Topic`. What a probe does
inside the script runs through `Session.run`: an exception there ends that probe, becomes a `NotObserved` event, and
never reaches the script.
"""

from __future__ import annotations

import enum
import functools
import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch._C._dynamo import eval_frame

from paceline.observe.sinks import Sink
from paceline.records.event import Event
from paceline.records.observed import NotObserved
from paceline.records.place import Place

_FILE = "<paceline, beside importlib._bootstrap>"
"""File name of functions that stand in for torch's. The words `importlib` and `_bootstrap` in it make `warnings` skip
their frames, so that a warning of torch still names the line of the script."""


class Topic(enum.IntEnum):
    """Announcements between probes, with the arguments of the listeners. Numbered, since each step looks some up."""

    BATCH_WANTED = enum.auto()
    """(loader): the script asks a loader for the next batch."""
    FORWARD = enum.auto()
    """(wrapped module): a forward pass of a wrapped model with gradients begins."""
    BACKWARD_BEGINS = enum.auto()
    STEP_BEGINS = enum.auto()
    """(optimizer): before it changes anything. Only of recorded steps, as the next."""
    STEP_ENDS = enum.auto()
    """(optimizer)."""
    EVALUATION_BEGINS = enum.auto()
    PASS_ENDS = enum.auto()
    """A pass over a loader that was trained on has ended."""
    MODEL_WRAPPED = enum.auto()
    """The first model was given to a wrapper; steps before do not count."""
    SCRIPT_ENDS = enum.auto()


@dataclass(slots=True)
class StepWindow:
    """Counters since the last optimizer step; see `ObservedStep`."""

    synchronized: tuple[bool, ...] = ()
    """One for each forward pass of a wrapped model."""
    forwards_before: int = 0
    """Of those, how many were before the last backward pass."""
    norms: dict[int, torch.Tensor] | None = None
    """Squared norm of each gradient after the last backward pass, by id of the parameter; on steps with digests."""
    inputs: int = 0
    """Batches of loaders that were looked at."""
    backwards: int = 0
    backwards_unwrapped: int = 0
    own_reductions: int = 0
    own_averages: int = 0
    clips: int = 0
    clips_since_backward: int = 0
    clips_before_backward: int = 0
    clips_while_scaled: int = 0
    scheduler_steps: int = 0
    unscaled: bool = False
    unscaled_by: float = 1.0
    loss: float | None = None
    clipped_norms: tuple[float, float] | None = None
    """Norm of the gradients that are clipped first: after the last backward pass, and just before they are clipped."""
    backward_times: tuple[float, float, float] | None = None
    """When the last backward pass began, was done but for DDP's wait, and ended; on recorded steps."""
    forward_place: Place | None = None
    backward_place: Place | None = None
    clip_place: Place | None = None
    reduce_place: Place | None = None
    scheduler_place: Place | None = None
    reentrant_place: Place | None = None


@dataclass(slots=True)
class Progress:
    """How far the script is, shared by the probes."""

    step: int = 0
    """Optimizer steps done; see `OptimizerSteps`."""
    stepping: int = 0
    """The step that an optimizer takes right now, or the last one that was recorded."""
    recorded: bool = True
    """The step that is under way is written down, see `schedule`."""
    digests: bool = True
    """State is digested before and after it."""
    samples: int = 0
    """Samples taken from training loaders, as of the last time that batches were noted."""
    loss_scale: float | None = None
    """Scale of the GradScaler; NaN if it was not read."""
    scheduler_steps: int = 0
    backwards: int = 0
    """Backward passes, one that is under way included."""
    wrapped_forwards: int = 0
    """Of wrapped models, without gradients."""
    groups: int = 0
    """Default process groups that were made, one after the other."""
    after_evaluation: int = 0
    """Collectives of the script that are written down in any case, since an evaluation has just ended."""
    restored_since_step: bool = False
    uneven: bool = False
    """Within `Join`: ranks may take different numbers of steps."""
    position: tuple[int, int, int] | None = None
    """Loader, pass and batch that the script received last."""
    window: StepWindow = field(default_factory=StepWindow)


class Probe:
    """Observes one signal. Subclasses patch and listen in `arm`; the session undoes both.

    Attributes:
        signal: what it observes, in the words of a report.
        requires: what must exist, as `(owner, attribute)`.
        live: its functions are called; set by the session.
    """

    live = False
    signal: str
    requires: tuple[tuple[Any, str], ...] = ()

    @classmethod
    def missing(cls) -> list[str]:
        """Names of what it requires and this torch does not have."""
        return [name for owner, name in cls.requires if not hasattr(owner, name)]

    def arm(self, session: Session) -> None:
        """Begin to observe."""
        raise NotImplementedError


class Session:
    """Observes this process from `arm` to `disarm`, or as a context manager.

    Args:
        sink: takes the events.
        probes: to be armed.
        rank: of this process.

    Attributes:
        on: False in processes that were forked from this one, and after `disarm`.
        armed: signals that are being observed.
        failed: why a signal is not observed, by signal.
        spent_s: time that digests of state took, the only dear thing that probes do.
    """

    def __init__(self, sink: Sink, probes: Iterable[Probe] = (), *, rank: int = 0) -> None:
        self.sink, self.rank = sink, rank
        self.probes = list(probes)
        self.progress = Progress()
        self.on = False
        self.armed: list[str] = []
        self.failed: dict[str, str] = {}
        self.spent_s = 0.0
        self.started_s = time.monotonic()
        self._undo: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._listeners: list[list[tuple[Probe, Callable[..., None]]]] = [[] for _ in range(max(Topic) + 1)]

    def __enter__(self) -> Session:
        self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()

    def arm(self) -> None:
        """Arm every probe; one that cannot be armed is recorded and left out."""
        self.on = True
        for probe in self.probes:
            if missing := probe.missing():
                self.give_up(probe, f"torch {torch.__version__} has no {', '.join(missing)}")
                continue
            probe.live = probe.signal not in self.failed
            try:
                probe.arm(self)
            except Exception as error:  # noqa: BLE001
                self.give_up(probe, _text(error))
            else:
                self.armed.append(probe.signal)

    def disarm(self) -> None:
        """Observe no more; torch is as it was before."""
        self.leave()
        for probe in reversed(self.probes):
            self._take_back(probe)

    def leave(self) -> None:
        """Observe no more and leave the patches, which then only pass on calls."""
        self.on = False
        for probe in self.probes:
            probe.live = False

    def emit(self, event: Event) -> None:
        """Hand an event to the sink."""
        self.sink.emit(event)

    def listen(self, probe: Probe, topic: Topic, function: Callable[..., None]) -> Callable[[], None]:
        """Call a function of a probe at each announcement. Returns a function that ends this."""
        listener = (probe, function)
        listeners = self._listeners[topic]
        listeners.append(listener)

        def leave() -> None:
            listeners[:] = [each for each in listeners if each is not listener]

        self._undo[probe.signal].append(leave)
        return leave

    def listeners(self, topic: Topic) -> Sequence[Any]:
        """Who listens at any time: empty where an announcement would reach nobody, as at most steps."""
        return self._listeners[topic]

    def timed(self, function: Callable[..., None]) -> Callable[..., None]:
        """The same function; its time counts as time of the observer. For what is dear and rare."""

        def timed(*args: Any) -> None:
            began = time.perf_counter()
            try:
                function(*args)
            finally:
                self.spent_s += time.perf_counter() - began

        return timed

    def announce(self, topic: Topic, *args: Any) -> None:
        """Call all listeners, in the order in which probes were armed."""
        for probe, function in tuple(self._listeners[topic]):
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001
                self.caught(probe, error)

    def guard(self, probe: Probe, function: Callable[..., None]) -> Callable[..., None]:
        """A hook for torch that calls a function of a probe."""
        compiling = torch.compiler.is_compiling

        def guarded(*args: Any) -> None:
            if not probe.live or compiling():
                return
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001
                self.caught(probe, error)

        return guarded

    def run(self, probe: Probe, function: Callable[..., Any], *args: Any) -> None:
        """Call a function of a probe within the script."""
        if not probe.live:
            return
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001
            self.caught(probe, error)

    def caught(self, probe: Probe, error: Exception) -> None:
        """A function of a probe raised an exception: the script must not feel it."""
        if _from_a_handler(error):  # of a signal that came meanwhile
            raise error
        self.give_up(probe, _text(error))

    def give_up(self, probe: Probe, why: str) -> None:
        """A probe observes no more; that is recorded once."""
        if probe.signal in self.failed:
            return
        probe.live = False
        self.failed[probe.signal] = why
        self._take_back(probe)
        try:
            self.emit(NotObserved(what=probe.signal, why=why))
        except Exception:  # noqa: BLE001  the sink itself is broken: nothing can be told any more
            self.leave()

    def undo(self, probe: Probe, function: Callable[[], None]) -> None:
        """Call a function when the probe is disarmed."""
        self._undo[probe.signal].append(function)

    def patch(
        self,
        probe: Probe,
        owner: Any,
        name: str,
        *,
        aliases: Iterable[Any] = (),
        before: Callable[[tuple[Any, ...], dict[str, Any]], Callable[[], None] | None] | None = None,
        after: Callable[[Any, tuple[Any, ...], dict[str, Any]], None] | None = None,
        raised: Callable[[BaseException, tuple[Any, ...], dict[str, Any]], None] | None = None,
    ) -> None:
        """Until `disarm`, call functions of a probe around each call of a function of torch's.

        Args:
            probe: whose functions they are.
            owner: a class or a module.
            name: of the function in it.
            aliases: modules that have the same function under the same name.
            before: before(args, kwargs) is called first. It may return a function that is called as `after` is, for
                what is seldom needed: calls of Python cost most where torch has just filled the caches.
            after: after(result, args, kwargs) is called when it has returned.
            raised: raised(exception, args, kwargs) is called when it has raised one.

        Raises:
            TypeError: it is no function, or not of `owner` itself.
        """
        original = vars(owner).get(name)
        if not callable(original):
            raise TypeError(f"{owner.__name__}.{name} is no plain function")
        session, compiling = self, torch.compiler.is_compiling

        @functools.wraps(original)
        def observed(*args: Any, **kwargs: Any) -> Any:
            if not probe.live or compiling():
                return original(*args, **kwargs)
            finish = None
            if before is not None:
                try:
                    finish = before(args, kwargs)
                except Exception as error:  # noqa: BLE001
                    session.caught(probe, error)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                if raised is not None:
                    session.run(probe, raised, error, args, kwargs)
                raise
            if (after is not None or finish is not None) and probe.live:
                try:
                    if finish is not None:
                        finish()
                    if after is not None:
                        after(result, args, kwargs)
                except Exception as error:  # noqa: BLE001
                    session.caught(probe, error)
            return result

        wrapper = cast(Any, observed)
        wrapper.__code__ = wrapper.__code__.replace(co_filename=_FILE)
        _skip_in_dynamo(wrapper.__code__)
        for each in (owner, *aliases):
            if vars(each).get(name) is original:
                setattr(each, name, observed)
                self._undo[probe.signal].append(functools.partial(_put_back, each, name, observed, original))

    def _take_back(self, probe: Probe) -> None:
        steps = self._undo[probe.signal]
        while steps:
            try:
                steps.pop()()
            except Exception:  # noqa: BLE001  `live` keeps what is left from doing anything
                continue


def _skip_in_dynamo(code: Any) -> None:
    """Keep torch.compile from tracing a function that stands in for torch's where compiled code does not call it."""
    module: Any = eval_frame
    try:
        strategy = module._FrameExecStrategy(module._FrameAction.SKIP, module._FrameAction.DEFAULT)
        module.set_code_exec_strategy(code, strategy)
    except (AttributeError, TypeError):  # another version of torch: it is traced, and calls the original
        return


def _put_back(owner: Any, name: str, ours: Any, original: Any) -> None:
    if vars(owner).get(name) is ours:  # the script may have patched it as well
        setattr(owner, name, original)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _from_a_handler(error: BaseException) -> bool:
    """True if an exception went through a handler of a signal, which is called with the frame that it interrupts.

    Code of the user's that a probe calls, as `__len__` of a data set, is no handler: what it raises is ours to keep.
    """
    trace = error.__traceback__
    while trace is not None and (below := trace.tb_next) is not None:
        code, values = below.tb_frame.f_code, below.tb_frame.f_locals
        names = code.co_varnames[: code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)]
        given = [values.get(name) for name in names]
        if any(trace.tb_frame is each for value in given for each in (value if type(value) is tuple else (value,))):
            return True
        trace = below
    return False
