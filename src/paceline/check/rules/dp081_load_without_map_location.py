"""`torch.load` puts tensors on the device from which they were saved.

What it does:
    Looks for `torch.load` of a checkpoint without `map_location`, or with GPU 0 as `map_location`, on a path through
    the script that all ranks take, in a script that runs on GPUs.

Why is this bad:
    A checkpoint that rank 0 saved holds tensors of `cuda:0`. Every rank that loads it allocates them there: the first
    GPU holds one copy and one CUDA context for each rank, and runs out of memory.

Repair:
    `torch.load(path, map_location="cpu")`, or the device of the rank.

Fix safety:
    Safe: `load_state_dict` copies from any device. Code that uses the loaded tensors themselves finds them on the CPU.

Known problems:
    Files that hold no tensors of a GPU are harmless; reading does not show what a file holds. A file counts as a
    checkpoint if its content goes to `load_state_dict`, or if its name says so.

References:
    F98. https://docs.pytorch.org/docs/stable/generated/torch.load.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import indices
from paceline.check.analyses.framework_names import SCHEDULERS
from paceline.check.analyses.process_paths import Path
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.same_file import written_out
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.edits import add_keyword, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.program import CallSite
from paceline.syntax.values import Object

_CHECKPOINT = (
    "model",
    "ckpt",
    "checkpoint",
    "weight",
    "resume",
    "state",
    ".pth",
    "best",
    "last",
    "pretrain",
    "snapshot",
)


class LoadWithoutMapLocation(Rule):
    """Loads onto the device of the rank that saved."""

    code, name, topic = "DP081", "load-without-map-location", "files"
    faults = ("F98",)
    severity = "warning"
    fixes = True
    valid = {
        "to the CPU": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            state = torch.load("model.pt", map_location="cpu")
        """,
        "a dictionary of arguments": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            options = {"map_location": "cpu"}
            state = torch.load("model.pt", **options)
        """,
        "data, in a data set": """
            class Tensors(Dataset):
                def __init__(self, path):
                    self.data = torch.load(path)

            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            data = Tensors("train_images.bin")
        """,
        "the numbers of a schedule": """
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1).cuda())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
            scheduler.load_state_dict(torch.load("schedule.pt"))
        """,
        "on rank 0, whose GPU it is": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            if dist.get_rank() == 0:
                state = torch.load("model.pt")
        """,
    }
    invalid = {
        "on every rank": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            state = torch.load("model.pt")  # here
        """,
        "GPU 0 by name": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            model = DDP(nn.Linear(2, 1).cuda())
            model.load_state_dict(torch.load("model.pt", map_location="cuda:0"))  # here
        """,
        "a trailing comma": """
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1).cuda())
            state = torch.load(  # here
                "model.pt",
                weights_only=True,
            )
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.uses_gpu or not script.plain:
            return
        for site in script.calls("torch.load"):
            absent = script.argument(site.node, "map_location", 1).absent
            if _is_mapped(script, site.node):
                continue
            path = next((each for each in script.paths.to(site.node) if each.ranks is Ranks.ALL and each.certain), None)
            if path is None or _saved_without_models(script, site, path):
                continue
            owners = _restored(script, site)
            if owners and all(_is_scheduler(script, each) for each in owners):
                continue  # numbers, no tensors
            restored = bool(owners)
            if absent and (restored or _is_named_checkpoint(script, site, path)):
                yield Violation(
                    site.node,
                    "torch.load without map_location puts the tensors of every rank on the GPU that saved them",
                    'pass map_location="cpu", or the device of the rank',
                    severity=None if restored else "info",
                    edits=(add_keyword(site.node, 'map_location="cpu"', site.module.source.text),),
                )
            elif not absent and restored:
                yield from _onto_first_gpu(script, site, path)


def _onto_first_gpu(script: Script, site: CallSite, path: Path) -> Iterator[Violation]:
    """`map_location="cuda:0"` on every rank."""
    device = given(site.node, "map_location", 1)
    texts = [module.source.text for module in script.program.imports.modules]
    if device is None or any("CUDA_VISIBLE_DEVICES" in text for text in texts):
        return
    if indices(script, device, path.context) == {0}:
        yield Violation(
            site.node,
            "torch.load puts the tensors of every rank on GPU 0",
            'pass map_location="cpu", or the device of the rank',
            edits=(replace(device, '"cpu"'),) if isinstance(device, ast.Constant) else (),
        )


def _is_mapped(script: Script, call: ast.Call) -> bool:
    """True if the tensors stay on the CPU in another way: `mmap=True`, or within `torch.device("cpu")`."""
    function = script.function_of(call)
    return script.argument(call, "mmap").given != () or any(
        isinstance(at, ast.With) and any("device" in ast.unparse(item.context_expr) for item in at.items)
        for at in function.module.ancestors(call)
    )


def _restored(script: Script, site: CallSite) -> list[ast.expr]:
    """Models, optimizers and the like that take their state from the file."""
    found = []
    for load in script.method_calls("load_state_dict"):
        state = given(load.node, "state_dict", 0)
        if state is not None and any(each.node is site.node for each in script.origins.of(state)):
            assert isinstance(load.node.func, ast.Attribute)
            found.append(load.node.func.value)
    return found


def _is_scheduler(script: Script, owner: ast.expr) -> bool:
    return any(
        isinstance(each, Object) and each.name.startswith((SCHEDULERS, "transformers.get_"))
        for each in script.values(owner)
    )


def _is_named_checkpoint(script: Script, site: CallSite, path: Path) -> bool:
    """True if the name of the file says that it holds a checkpoint, and no data set reads it."""
    cls = site.function.cls
    if cls is not None and any("Dataset" in each for each in script.program.evaluator.external_bases(cls)):
        return False
    name = given(site.node, "f", 0)
    if name is None:
        return False
    text = written_out(script, name, path.context).lower()
    return any(part in text for part in _CHECKPOINT)


def _saved_without_models(script: Script, site: CallSite, path: Path) -> bool:
    """True if the script itself saves the file, with nothing of a model in it."""
    name = given(site.node, "f", 0)
    wanted = written_out(script, name, path.context) if name is not None else ""
    states = []
    for save in script.calls("torch.save"):
        target, saved = given(save.node, "f", 1), given(save.node, "obj", 0)
        if target is None or saved is None:
            continue
        for at in script.paths.to(save.node):
            if written_out(script, target, at.context) == wanted:
                origins = script.origins.of(saved, at.context)
                states.append(any("state_dict" in ast.unparse(each.node) for each in origins))
    return bool(states) and not any(states)
