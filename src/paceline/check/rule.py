"""The base class of all rules of `paceline check`.

A module `rules/dp0xx_<slug>.py` holds one rule. Its docstring has the headings of `HEADINGS`; the reference of rules,
the tests of each rule and its help are made from the module, so nothing about a rule stands in two places.
"""

from __future__ import annotations

import abc
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from paceline.check.analyses.script import Script
from paceline.check.edits import Edit
from paceline.records.event import Severity

HEADINGS = ("What it does", "Why is this bad", "Repair", "Fix safety", "Known problems", "References")
"""`Fix safety` only in rules that fix."""
TOPICS = ("data", "gradients", "wrapping", "buffers", "evaluation", "control flow", "files", "launch")

PRELUDE = """\
import argparse, copy, os, random, sys, time
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

class Numbers(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.full((2,), index / 1000), torch.tensor([index / 500])

"""
"""In front of each case: the usual imports, and a data set."""
MARK = "# here"
"""Comment that marks the lines of a case that are reported."""


@dataclass(frozen=True)
class Violation:
    """A place that a rule reports.

    Attributes:
        node: where; the line of the finding is that of its first character.
        message: what the code does and what follows from it, with the names that stand in the script.
        advice: the shortest correct repair.
        severity: None for that of the rule.
        faults: ids that name this one; empty for those of the rule.
        edits: a repair that is safe to apply; empty where there is none.
        evidence: names and lines that the message rests on.
    """

    node: ast.AST
    message: str
    advice: str
    severity: Severity | None = None
    faults: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)


class Rule(abc.ABC):
    """One kind of fault that can be read in a script.

    Attributes:
        code: permanent, DP0xx.
        name: a few words with hyphens.
        topic: one of `TOPICS`.
        faults: ids of the faults that it can name, the main one first.
        severity: `error` if the code is wrong whatever stands elsewhere, `warning` if it is wrong unless something that
            reading does not show makes it right, `info` for what is worth knowing.
        fixes: some of its violations have edits.
        valid: cases without a violation, by a name that says what is right about them.
        invalid: cases with violations on the lines that `MARK` marks, by a name that says what is wrong.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    topic: ClassVar[str]
    faults: ClassVar[tuple[str, ...]]
    severity: ClassVar[Severity]
    fixes: ClassVar[bool] = False
    valid: ClassVar[dict[str, str]]
    invalid: ClassVar[dict[str, str]]

    @abc.abstractmethod
    def check(self, script: Script) -> Iterator[Violation]:
        """Places in a distributed script that the rule reports."""
