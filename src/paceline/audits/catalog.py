"""All audits of observed runs, in the order of their codes."""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.dp101_replicas_diverge import ReplicasDiverge
from paceline.audits.dp102_forward_bypasses_wrapper import ForwardBypassesWrapper
from paceline.audits.dp103_never_wrapped import NeverWrapped
from paceline.audits.dp104_parameters_outside_wrapper import ParametersOutsideWrapper
from paceline.audits.dp105_trainable_set_changed import TrainableSetChanged
from paceline.audits.dp106_step_without_synchronization import StepWithoutSynchronization
from paceline.audits.dp107_gradient_of_parameters import GradientOfParameters
from paceline.audits.dp108_parameter_order import ParameterOrder
from paceline.audits.dp109_state_restored_on_some_ranks import StateRestoredOnSomeRanks
from paceline.audits.dp110_optimizer_without_model import OptimizerWithoutModel
from paceline.audits.dp111_clip_before_synchronization import ClipBeforeSynchronization
from paceline.audits.dp112_gradient_reduced_twice import GradientReducedTwice
from paceline.audits.dp113_separate_worlds import SeparateWorlds
from paceline.audits.dp114_buffers_differ import BuffersDiffer
from paceline.audits.dp115_accumulation_without_no_sync import AccumulationWithoutNoSync
from paceline.audits.dp116_moved_after_wrap import MovedAfterWrap
from paceline.audits.dp121_no_sampler import NoSampler
from paceline.audits.dp122_identical_batches import IdenticalBatches
from paceline.audits.dp123_same_order_each_epoch import SameOrderEachEpoch
from paceline.audits.dp124_sampler_differs import SamplerDiffers
from paceline.audits.dp125_iterable_not_sharded import IterableNotSharded
from paceline.audits.dp126_data_set_differs import DataSetDiffers
from paceline.audits.dp127_split_differs import SplitDiffers
from paceline.audits.dp128_shuffle_lost import ShuffleLost
from paceline.audits.dp129_padded_training import PaddedTraining
from paceline.audits.dp130_same_random_state import SameRandomState
from paceline.audits.dp131_learning_rate_differs import LearningRateDiffers
from paceline.audits.dp132_scheduler_steps import SchedulerSteps
from paceline.audits.dp133_loss_scale_differs import LossScaleDiffers
from paceline.audits.dp134_non_finite import NonFiniteValues
from paceline.audits.dp141_padded_evaluation import PaddedEvaluation
from paceline.audits.dp142_shard_metric import ShardMetric
from paceline.audits.dp151_same_file import SameFile
from paceline.audits.dp152_read_before_written import ReadBeforeWritten
from paceline.audits.dp153_path_per_rank import PathPerRank
from paceline.audits.dp154_duplicate_loggers import DuplicateLoggers
from paceline.audits.dp155_repeated_output import RepeatedOutput

AUDITS: tuple[type[Audit], ...] = (
    ReplicasDiverge,
    ForwardBypassesWrapper,
    NeverWrapped,
    ParametersOutsideWrapper,
    TrainableSetChanged,
    StepWithoutSynchronization,
    GradientOfParameters,
    ParameterOrder,
    StateRestoredOnSomeRanks,
    OptimizerWithoutModel,
    ClipBeforeSynchronization,
    GradientReducedTwice,
    SeparateWorlds,
    BuffersDiffer,
    AccumulationWithoutNoSync,
    MovedAfterWrap,
    NoSampler,
    IdenticalBatches,
    SameOrderEachEpoch,
    SamplerDiffers,
    IterableNotSharded,
    DataSetDiffers,
    SplitDiffers,
    ShuffleLost,
    PaddedTraining,
    SameRandomState,
    LearningRateDiffers,
    SchedulerSteps,
    LossScaleDiffers,
    NonFiniteValues,
    PaddedEvaluation,
    ShardMetric,
    SameFile,
    ReadBeforeWritten,
    PathPerRank,
    DuplicateLoggers,
    RepeatedOutput,
)
