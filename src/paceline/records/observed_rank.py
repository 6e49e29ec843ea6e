"""Events that probes record in a rank of an unchanged script. See `observed` for collectives and digests.

The rank is that of the event file. Events stand in the order of the program, so what lies between two events happened
between them. Steps are rounds in which each optimizer steps at most once; 0 is before the first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.records.event import Event
from paceline.records.place import Place

SIGNALS = {
    "groups": "process groups",
    "fingerprints": "digests of parameters, buffers, gradients and optimizer state",
    "steps": "optimizer steps",
    "wrappers": "models in DDP or FSDP, and what they are given",
    "backward": "backward passes and losses",
    "loaders": "data loaders and the samples that they give",
    "collectives": "collectives that the script calls itself",
    "clips": "gradient clipping",
    "scaling": "loss scales of GradScalers",
    "schedulers": "learning-rate schedulers",
    "restores": "loaded and converted state",
    "files": "files that the script opens",
    "output": "lines that ranks print, compared by the launcher",
}
"""What can be observed. Each but the last has one probe; audits name those that they need."""


class RankStarted(Event, frozen=True, kw_only=True, tag="rank_started"):
    """A rank imported torch and is observed from here on."""

    rank: int
    local_rank: int
    world: int
    """Ranks that the launcher started."""
    pid: int
    host: str
    started_unix_s: float
    script: str
    directory: str
    versions: dict[str, str]
    """python, torch, paceline."""
    threads: int
    devices: list[str] = []  # noqa: RUF012  # msgspec makes a new one for each
    """Accelerators that this process sees."""
    watched: list[str] = []  # noqa: RUF012  # msgspec makes a new one for each
    """Signals whose probes were armed."""


class GroupMade(Event, frozen=True, kw_only=True, tag="group_made"):
    """The default process group exists."""

    rank: int
    world: int
    backend: str
    place: Place | None = None


class ModelWrapped(Event, frozen=True, kw_only=True, tag="model_wrapped"):
    """A model was given to DDP, FSDP or another wrapper."""

    number: int
    """0 for the first of this process."""
    wrapper: str
    """`DistributedDataParallel`, `fully_shard`, ..."""
    model: str
    """Class of the model."""
    step: int
    parameters: int
    """That require gradients: those that the wrapper synchronizes."""
    order: str
    """Digest of (name, shape, type) of all parameters in order of registration."""
    first_names: list[str]
    """Names of the first parameters, for messages."""
    options: dict[str, Any]
    """broadcast_buffers, find_unused_parameters, static_graph, comm_hook."""
    layers: dict[str, int]
    """How many: batch_norm (local statistics), sync_batch_norm, dropout."""
    group: int
    """Ranks in its process group."""
    place: Place | None = None


class TrainableChanged(Event, frozen=True, kw_only=True, tag="trainable_changed"):
    """A wrapped model no longer has the parameters that its wrapper registered."""

    number: int
    step: int
    added: list[str]
    """Require gradients now, and are not synchronized."""
    removed: list[str]
    """Registered, and do not require gradients now or are no longer part of the model."""
    place: Place | None = None
    """Of the last `requires_grad_` of a module after wrapping."""


class OptimizerSeen(Event, frozen=True, kw_only=True, tag="optimizer_seen"):
    """An optimizer's first step, or its parameters have changed since."""

    number: int
    kind: str
    step: int
    parameters: int
    wrapped: int
    """Of them, those that a wrapper synchronizes."""
    outside: list[str]
    """Names of those that no wrapper synchronizes, the first 20; `?` where no module has them."""
    without_gradient: int
    """Of them, those that had no gradient at this step."""
    wrapped_with_gradient_elsewhere: list[str] = []  # noqa: RUF012  # msgspec makes a new one for each
    """Parameters of wrapped models that have a gradient and belong to no optimizer, the first 20."""
    place: Place | None = None


class ObservedStep(Event, frozen=True, kw_only=True, tag="observed_step"):
    """Events since the step before; written for the steps that `schedule` names and when the pattern changes."""

    step: int
    optimizer: int
    lr: list[float]
    """Of each parameter group, as this step used it."""
    forwards: int
    """Forward passes of wrapped models with gradients enabled."""
    synchronized: list[bool]
    """For each of them, in order: whether DDP was to reduce in its backward pass (False within `no_sync`)."""
    backwards: int
    backwards_unwrapped: int
    """Backward passes that no forward pass of a wrapped model preceded."""
    reductions: int | None
    """Collectives of the default group, DDP's own included; None where the group does not count them."""
    own_reductions: int
    """Of gradients, called by the script itself."""
    own_averages: int = 0
    """Of parameters, called by the script itself."""
    clips: int = 0
    clips_before_backward: int = 0
    """Clipped before the last backward pass of the step."""
    clips_while_scaled: int = 0
    """Clipped while gradients still carried the scale of a GradScaler."""
    scheduler_steps: int = 0
    """Of learning-rate schedulers since the step before."""
    loss: float | None = None
    """What the last backward pass started from, with the loss scale; None where it was not looked at."""
    loss_scale: float | None = None
    norm_after_backward: float | None = None
    """Norm of this optimizer's gradients when the last backward pass ended; only on steps with digests."""
    norm_at_step: float | None = None
    """The same when the optimizer took them."""
    norm_before_clip: bool = False
    """Both norms are of the gradients that were clipped, before that."""
    unscaled_by: float = 1.0
    """What a GradScaler divided by between the two."""
    backward_begun_s: float | None = None
    """When the last backward pass began, on this machine's monotonic clock; None where it was not timed."""
    backward_done_s: float | None = None
    """When this rank had done its own part of it, before DDP waits for other ranks."""
    backward_ended_s: float | None = None
    """When it had ended, DDP's wait included."""
    loader: int | None = None
    """The loader that gave the last batch, its pass and the batch in it, 0 for the first."""
    number: int | None = None
    batch: int | None = None
    forward_place: Place | None = None
    backward_place: Place | None = None
    step_place: Place | None = None
    clip_place: Place | None = None
    reduce_place: Place | None = None
    """Of the last collective on gradients that the script called itself."""
    reentrant_place: Place | None = None
    """Of an activation checkpoint that runs its own backward pass (`use_reentrant=True`)."""
    scheduler_place: Place | None = None
    """Of the last step of a scheduler."""


class LoaderBegun(Event, frozen=True, kw_only=True, tag="loader_begun"):
    """A pass over a data loader begins."""

    loader: int
    """0 for the loader that was first iterated over in this process."""
    number: int
    """The pass over that loader, 0 for the first."""
    step: int
    dataset: str
    """Class of the root data set, below any Subset."""
    data: int
    """Loaders with the same root data set have the same number."""
    samples: int | None
    """In the loader's data set; None when it has no length."""
    root_samples: int | None
    iterable: bool
    batch_size: int | None
    sampler: str
    """Class of the sampler of samples; `?` where a batch sampler hides it."""
    sampler_facts: dict[str, Any]
    """Of a DistributedSampler: num_replicas, rank, shuffle, seed, epoch, drop_last."""
    set_epoch: int | None = None
    """The last epoch that the script gave to any sampler or data set, and None before the first."""
    unused_samplers: int = 0
    """DistributedSamplers that the script made and that no loader uses."""
    subset: str | None = None
    """Digest of the root indices of a Subset, in order."""
    content: str | None = None
    """Digest of what the root data set holds (lists, arrays, tensors)."""
    content_unordered: str | None = None
    """The same, independent of the order of the samples; None where it was not taken."""
    attributes: str | None = None
    """Digest of the root data set's plain attributes (numbers, strings, paths); None where it was not taken."""
    workers: int = 0
    persistent: bool = False
    loader_class: str = "DataLoader"
    subset_place: Place | None = None
    """Where the Subset was made."""
    place: Place | None = None
    """Where the loader was made."""


class LoaderEnded(Event, frozen=True, kw_only=True, tag="loader_ended"):
    """A pass over a data loader ended, or was given up for the next one."""

    loader: int
    number: int
    step: int
    batches: int
    samples: int | None
    """That this rank received; None where it could not be counted."""
    exhausted: bool
    """False where the loop left it early."""
    backwards: int
    """Backward passes during it, or optimizer steps where those are more: none in an evaluation."""
    wrapped_forwards: int = 0
    """Forward passes of wrapped models without gradients during it; DDP's own broadcast buffers first."""
    with_gradients: bool = True
    """Gradients were enabled when one of its batches was taken. False for an evaluation that stays open while training
    goes on: its `backwards` are those of other loaders."""
    order: str | None = None
    """Digest of the root indices in order; None where there are none."""
    increasing: bool = False
    """The indices only grew."""
    recorded: bool = False
    """Its indices are in the ledger."""
    not_observed: str = ""
    """Why there are no indices."""

    @property
    def trained(self) -> bool:
        """The script trained during it, and may have trained on its batches."""
        return self.backwards > 0 and self.with_gradients


class LedgerBatch(Event, frozen=True, kw_only=True, tag="ledger_batch"):
    """The samples of one batch that the training loop received; never written to event files.

    The live judge takes it from the ring, a saved run's reader from `ledger/*.npy`, with the attempt of the rank's
    other events. It may come before or after the events of its pass.
    """

    loader: int
    number: int
    """The pass over that loader, 0 for the first."""
    batch: int
    """0 for the first of that pass."""
    indices: list[int]
    """Into the root data set, below any Subset."""


class InputSeen(Event, frozen=True, kw_only=True, tag="input_seen"):
    """The input of a model in a forward pass that was trained on."""

    step: int
    """The step that it leads to."""
    forward: int
    """0 for the first forward pass of that step."""
    rows: int
    """Size of the first dimension."""
    shape: list[int]
    digest: str
    """Of elements spread over the tensors; empty where all are equal to each other."""
    wrapper: int | None = None
    """Number of the wrapped model."""
    loader: int | None = None
    number: int | None = None
    batch: int | None = None


class StateRestored(Event, frozen=True, kw_only=True, tag="state_restored"):
    """`load_state_dict` was called."""

    what: str
    """`model` or `optimizer`."""
    name: str
    """Its class."""
    step: int
    after_wrap: bool
    """A wrapper already had the model's parameters."""
    place: Place | None = None


class ModelMoved(Event, frozen=True, kw_only=True, tag="model_moved"):
    """A wrapped model's parameters were converted: `.cpu()`, `.half()`, `.to(...)`."""

    number: int
    step: int
    replaced: int
    """Parameters that are other objects than those that the wrapper registered."""
    converted: int
    """Parameters whose type or device changed."""
    place: Place | None = None


class FileTouched(Event, frozen=True, kw_only=True, tag="file_touched"):
    """A file was opened by the script; the first times for each path and mode."""

    path: str
    """Absolute."""
    mode: str
    """`read`, `write` (from empty), `append`, `directory`, `rename`."""
    by: str
    """`open`, `torch.save`, `torch.load`, ..."""
    step: int
    collectives: int
    """Collectives of the default group that this rank had called before."""
    place: Place | None = None


class NonFinite(Event, frozen=True, kw_only=True, tag="non_finite"):
    """The first loss or gradient of this rank that was no finite number."""

    what: str
    """`loss`, `gradient`."""
    step: int
    value: str
    place: Place | None = None


class GradientTaken(Event, frozen=True, kw_only=True, tag="gradient_taken"):
    """`torch.autograd.grad` with respect to parameters of a wrapped model, which DDP does not synchronize."""

    step: int
    parameters: int
    place: Place | None = None


class SchedulerSeen(Event, frozen=True, kw_only=True, tag="scheduler_seen"):
    """A learning-rate scheduler was made."""

    kind: str
    horizon: int | None
    """Steps for which it was made (`total_steps`, `T_max`); None where it has no end."""
    place: Place | None = None


class ScriptEnded(Event, frozen=True, kw_only=True, tag="script_ended"):
    """The rank destroyed its process group or left its interpreter in order."""

    step: int
    scheduler_steps: int
    observer_s: float
    """Time that digests of state took in this rank."""
    elapsed_s: float
    """Since torch was imported."""
    samples: int = 0


class OutputRepeated(msgspec.Struct, frozen=True, kw_only=True):
    """A line that several ranks printed."""

    text: str
    ranks: int
    times: int
    """Over all ranks."""


class OutputCompared(Event, frozen=True, kw_only=True, tag="output_compared"):
    """The launcher's comparison of the ranks' output."""

    lines: int
    """Printed by rank 0."""
    repeated: int
    """Of them, those that every rank printed."""
    examples: list[OutputRepeated]


RankEvent = (
    RankStarted
    | GroupMade
    | ModelWrapped
    | TrainableChanged
    | OptimizerSeen
    | ObservedStep
    | LoaderBegun
    | LoaderEnded
    | LedgerBatch
    | InputSeen
    | StateRestored
    | ModelMoved
    | FileTouched
    | NonFinite
    | GradientTaken
    | SchedulerSeen
    | ScriptEnded
    | OutputCompared
)
