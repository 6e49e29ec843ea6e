"""What batch norm takes its statistics over, by name; nothing here imports torch."""

from __future__ import annotations

BATCH_NORMS: dict[str, str] = {
    "local": "each worker's own samples, as torch has it",
    "sync": "the samples of all workers: the statistics of one process",
    "ghost": "groups of --ghost-size samples, whatever the batch and the workers (Hoffer et al. 2017)",
}
