"""Tables of functions and attributes of other packages, for `local_values`."""

from __future__ import annotations

CLOCKS = frozenset(
    (
        "time.time", "time.monotonic", "time.perf_counter", "time.process_time", "time.time_ns", "time.monotonic_ns",
        "time.perf_counter_ns", "timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow",
    )
)  # fmt: skip
FILES = frozenset(
    (
        "os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.lexists", "os.path.getmtime", "os.path.getsize",
        "os.listdir", "os.stat", "os.access", "glob.glob",
    )
)  # fmt: skip
FILE_METHODS = frozenset(("exists", "is_file", "is_dir", "glob", "iterdir", "rglob"))
SHARDS = frozenset(("builtins.range", "builtins.slice", "torch.utils.data.Subset", "torch.arange", "numpy.array_split"))
"""Functions that turn the rank into a shard of data."""
SIZES = frozenset(("size", "dim", "numel", "ndimension", "keys", "get_last_lr"))
"""Methods whose results are the same on all ranks, as a rule."""
SHAPES = frozenset(("shape", "dtype", "device", "ndim", "training", "requires_grad", "param_groups", "module"))
"""Likewise attributes."""
PURE = ("torch.", "numpy.", "math.", "builtins.", "scipy.", "sklearn.metrics.", "statistics.", "copy.", "einops.")
"""Packages whose functions give results that are as local as their arguments."""
RANDOM = ("torch.rand", "numpy.random.", "random.")
UNREADABLE = ("torch.load", "builtins.open", "builtins.input", "torch.distributed.", "torch.hub.", "numpy.load")
MODULES = ("criterion", "loss_fn", "loss_func", "loss_function", "model", "net", "network", "ddp_model")
"""Names of modules that are called; their results are as local as their arguments."""
