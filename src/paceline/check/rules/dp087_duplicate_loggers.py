"""All ranks start a logger of the same run.

What it does:
    Looks for experiment loggers (Weights & Biases, TensorBoard, MLflow and others) and for log files that are opened
    to append, on a path through the script that all ranks take.

Why is this bad:
    N ranks make N runs or N event files of one training. Curves are drawn N times, tables get each row N times, and
    rows of ranks that write at the same time are mixed.

Repair:
    Make the logger on rank 0 only, and log values that are reduced over all ranks.

Known problems:
    Runs of all ranks on purpose are recognized by `group=`, by the rank in a name or a directory, and by `mode=`.

References:
    F101, F93. https://docs.wandb.ai/guides/track/log/distributed-training
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.process_paths import Path
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import Effect, Naming, display, given, naming, several_processes, writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.program import CallSite

_LOGGERS = {
    "wandb.init": ("a run of Weights & Biases", ()),
    "torch.utils.tensorboard.SummaryWriter": ("a TensorBoard event file", ("log_dir", "logdir")),
    "mlflow.start_run": ("an MLflow run", ()),
    "comet_ml.Experiment": ("a Comet experiment", ()),
    "comet_ml.start": ("a Comet experiment", ()),
    "neptune.init_run": ("a Neptune run", ()),
    "clearml.Task.init": ("a ClearML task", ()),
    "swanlab.init": ("a SwanLab run", ()),
    "aim.Run": ("an Aim run", ()),
    "trackio.init": ("a Trackio run", ()),
}
_ON_PURPOSE = ("group", "mode", "disabled", "nested")
"""Arguments with which ranks are told apart, or switched off."""


class DuplicateLoggers(Rule):
    """Loggers on all ranks."""

    code, name, topic = "DP087", "duplicate-loggers", "files"
    faults = ("F101", "F93")
    severity = "warning"
    valid = {
        "on rank 0": """
            from torch.utils.tensorboard import SummaryWriter

            dist.init_process_group("gloo")
            writer = SummaryWriter("tb") if dist.get_rank() == 0 else None
        """,
        "a flag that is set from the rank": """
            import wandb

            class Logger:
                def __init__(self, enabled):
                    self.enabled = enabled
                    if self.enabled:
                        wandb.init(project="digits")

            dist.init_process_group("gloo")
            logger = Logger(enabled=dist.get_rank() == 0)
        """,
        "one run for each rank, in a group": """
            import wandb

            dist.init_process_group("gloo")
            wandb.init(project="digits", group="experiment-1")
        """,
        "a directory for each rank": """
            from torch.utils.tensorboard import SummaryWriter

            dist.init_process_group("gloo")
            writer = SummaryWriter(os.path.join("tb", str(dist.get_rank())))
        """,
    }
    invalid = {
        "TensorBoard": """
            from torch.utils.tensorboard import SummaryWriter

            dist.init_process_group("gloo")
            writer = SummaryWriter("tb")  # here
        """,
        "Weights & Biases in the main function": """
            import wandb

            def main(config):
                dist.init_process_group("gloo")
                if config.wandb_project:
                    wandb.init(project=config.wandb_project, config=vars(config))  # here

            if __name__ == "__main__":
                main(argparse.ArgumentParser().parse_args())
        """,
        "a handler of the logging module": """
            import logging

            def logger_in(directory):
                logger = logging.getLogger("train")
                logger.addHandler(logging.FileHandler(os.path.join(directory, "train.log")))  # here
                return logger

            logger = logger_in("logs")
            dist.init_process_group("gloo")
        """,
        "a file of a logger of one's own": """
            import csv

            class Table:
                def __init__(self, path):
                    self.file = open(path, "a", newline="")  # here
                    self.writer = csv.writer(self.file)

            dist.init_process_group("gloo")
            table = Table("metrics.csv")
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        for name, (what, directories) in _LOGGERS.items():
            for site in script.calls(name):
                path = script.paths.everywhere(site.node)
                if path is not None and not _on_purpose(script, site, path, directories):
                    yield Violation(
                        site.node,
                        f"every rank starts {what}, so one training is logged once for each rank",
                        "start the logger on rank 0 only, and log values that are reduced over all ranks",
                        faults=("F101",),
                    )
        for site in script.calls("logging.FileHandler", "logging.basicConfig"):
            file, path = given(site.node, "filename", 0), script.paths.everywhere(site.node)
            if site.name == "logging.basicConfig" and not any(each.arg == "filename" for each in site.node.keywords):
                continue
            if file is not None and path is not None and naming(script, file, path.context) is Naming.SAME:
                yield Violation(
                    site.node,
                    f"every rank logs to {display(file)}, where the lines of all ranks are mixed",
                    "add the file on rank 0 only, or put the rank into its name",
                )
        for write in writes(script):
            path = script.paths.everywhere(write.site.node) if write.effect is Effect.APPEND else None
            if path is not None and naming(script, write.path, path.context) is Naming.SAME:
                yield Violation(
                    write.site.node,
                    f"every rank appends to {display(write.path)}, so each row is written once for each rank",
                    "open the file on rank 0 only, and write values that are reduced over all ranks",
                )


def _on_purpose(script: Script, site: CallSite, path: Path, directories: tuple[str, ...]) -> bool:
    call = site.node
    if any(keyword.arg in _ON_PURPOSE or keyword.arg is None for keyword in call.keywords):
        return True
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(script.origins.rest_on_rank(each, path.context) for each in given):
        return True
    if site.name == "wandb.init":
        return any("WANDB_MODE" in module.source.text for module in script.program.imports.modules)
    if not directories:
        return False
    values = script.argument(call, directories[0], 0)
    kinds = {naming(script, each.node, path.context) for each in values.given}
    return bool(kinds & {Naming.TEMPORARY, Naming.UNREAD})
