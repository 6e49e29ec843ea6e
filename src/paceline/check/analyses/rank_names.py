"""Names by which scripts tell ranks apart: variables, calls, tests of rank 0 and guards."""

GLOBAL_VARIABLES = frozenset({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "GLOBAL_RANK"})
LOCAL_VARIABLES = frozenset(
    {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_PROCESS_RANK"}
)
NODE_VARIABLES = frozenset({"NODE_RANK", "GROUP_RANK", "SLURM_NODEID"})
GLOBAL_CALLS = frozenset({"torch.distributed.get_rank", "horovod.torch.rank", "torch_xla.core.xla_model.get_ordinal"})
LOCAL_CALLS = frozenset({"torch.distributed.get_node_local_rank", "horovod.torch.local_rank"})
GLOBAL_NAMES = frozenset({"rank", "global_rank", "world_rank", "process_index", "ddp_rank", "dist_rank"})
LOCAL_NAMES = frozenset({"local_rank", "local_process_index", "ddp_local_rank", "localrank"})
NODE_NAMES = frozenset({"node_rank", "machine_rank"})
MAIN = frozenset(
    [
        "is_main_process",
        "is_main",
        "is_master",
        "is_master_process",
        "master_process",
        "main_process",
        "is_rank_zero",
        "is_rank_0",
        "is_rank0",
        "is_chief",
        "is_primary",
        "is_global_zero",
        "is_world_process_zero",
        "is_world_master",
        "is_root",
        "is_coordinator",
        "is_first_rank",
        "rank_zero",
        "is_leader",
        "is_writer",
        "ismaster",
        "is_logger",
    ]
)
LOCAL_MAIN = frozenset(
    ["is_local_main_process", "is_local_zero", "is_local_process_zero", "is_local_master", "local_master"]
)
ONE_PROCESS = frozenset(
    ["distributed", "is_distributed", "use_ddp", "ddp", "is_ddp", "multi_gpu", "use_distributed", "is_parallel"]
)
ONLY_ZERO = frozenset(
    ["rank_zero_only", "rank_zero", "on_main_process", "main_process_only", "master_only", "only_on_main"]
)
GUARDS = ("rank_zero", "rank0", "main_process", "master_only", "master_process")
"""Parts of names of decorators and context managers that let one rank through."""
