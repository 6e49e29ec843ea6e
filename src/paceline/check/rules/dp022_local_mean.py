"""A loss is divided by a count of this rank's tokens or valid items.

What it does:
    Looks for losses that are divided by a number which depends on the data of the rank (`mask.sum()`, a count of
    tokens), or averaged over the items that a mask selects. Loss functions with `ignore_index` are reported as `info`.

Why is this bad:
    DDP takes the plain mean of the ranks' gradients. Where one rank has 10 valid tokens and another one 1000, each
    token of the first weighs 100 times more than in a run on one device. Ranks stay equal, so nothing else reports it.

Repair:
    All-reduce the count, and compute `local_sum * world_size / global_count`.

Known problems:
    Counts that happen to be equal on all ranks are harmless. `paceline verify` compares with a run on one device.

References:
    F22. https://github.com/huggingface/transformers/issues/34242
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.loss_terms import Term, is_local, losses, reduced_tensor, reduction
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Named, Object


class LocalMean(Rule):
    """Losses that are divided by local counts."""

    code, name, topic = "DP022", "local-mean", "gradients"
    faults = ("F22",)
    severity = "warning"
    valid = {
        "the count of all ranks": """
            dist.init_process_group("gloo")
            world = dist.get_world_size()
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                count = (y > 0).sum().float()
                dist.all_reduce(count)
                loss = (F.mse_loss(model(x), y, reduction="none") * (y > 0)).sum()
                (loss * world / count).backward()
        """,
        "the size of the batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y, reduction="sum") / y.shape[0]
                loss.backward()
        """,
        "a number of steps": """
            def main(args):
                dist.init_process_group("gloo")
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                for x, y in loader:
                    loss = F.mse_loss(model(x), y) / args.accumulate
                    loss.backward()

            main(argparse.ArgumentParser().parse_args())
        """,
        "a number of micro-batches among settings that differ": """
            def main(settings):
                dist.init_process_group("gloo")
                settings["rank"] = dist.get_rank()
                accum_batches = settings.get("grad_accum", 1)
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                for x, y in loader:
                    loss = F.mse_loss(model(x), y) / accum_batches
                    loss.backward()

            main({})
        """,
    }
    invalid = {
        "a sum over a mask": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                mask = (y > 0).float()
                loss = (F.mse_loss(model(x), y, reduction="none") * mask).sum() / mask.sum()  # here
                loss.backward()
        """,
        "a helper with a smallest count of one": """
            def masked_loss(logits, target, pad):
                keep = target != pad
                losses = F.cross_entropy(logits, target, reduction="none")
                return (losses * keep).sum() / keep.sum().clamp(min=1)  # here

            def main():
                dist.init_process_group("gloo")
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                for x, y in loader:
                    loss = masked_loss(model(x), y, 0)
                    loss.backward()

            main()
        """,
        "the mean of selected items": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                losses = F.mse_loss(model(x), y, reduction="none")
                valid = y > 0
                losses[valid].mean().backward()  # here
        """,
        "padding that is ignored": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            criterion = nn.CrossEntropyLoss(ignore_index=0)
            for x, y in loader:
                loss = criterion(model(x), y)  # here
                loss.backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not (script.wrappers or script.engines & {"fsdp", "accelerate", "fabric"}):
            return
        reported: set[ast.expr] = set()
        for _, _, terms in losses(script):
            for term in terms:
                for violation in _of_term(script, term):
                    if violation.node not in reported:
                        reported.add(violation.node)  # type: ignore[arg-type]
                        yield violation


def _of_term(script: Script, term: Term) -> Iterator[Violation]:
    for each in term.factors:
        text = ast.unparse(each.node)
        if each.divides and "accum" not in text.lower() and is_local(script, each.node, each.context):
            yield Violation(
                each.node,
                f"the loss is divided by {text}, a count of this rank; DDP averages the quotients of the ranks, so"
                " items of ranks with few of them weigh more",
                "all-reduce the count, and use local_sum * world_size / global_count",
            )
            return
    if any(each.divides for each in term.factors) or not isinstance(term.node, ast.Call):
        return
    tensor = reduced_tensor(term.node)
    if reduction(script, term) == "mean" and isinstance(tensor, ast.Subscript) and _masks(script, term, tensor):
        yield Violation(
            term.node,
            f"the loss is the mean over the items that {ast.unparse(tensor.slice)} selects on this rank; DDP averages"
            " the means of the ranks, so items of ranks with few of them weigh more",
            "sum the items, all-reduce their count, and use local_sum * world_size / global_count",
        )
    elif _ignores(script, term):
        yield Violation(
            term.node,
            "the mean leaves out ignored targets, and their share differs between ranks; DDP averages the ranks' means",
            'use reduction="sum" with the all-reduced count of targets if batches hold different shares of padding',
            severity="info",
        )


def _masks(script: Script, term: Term, tensor: ast.Subscript) -> bool:
    """True if an index selects by the data: a name or a comparison, no slice or number."""
    index = tensor.slice
    if isinstance(index, ast.Name | ast.Compare | ast.UnaryOp | ast.BinOp | ast.Attribute):
        return is_local(script, index, term.context) and is_local(script, tensor.value, term.context)
    return False


def _ignores(script: Script, term: Term) -> bool:
    assert isinstance(term.node, ast.Call)
    if reduction(script, term) != "mean":
        return False
    for value in script.values(term.node.func, term.context):
        call: ast.Call | Object | None = value if isinstance(value, Object) else None
        if isinstance(value, Named) and value.name.startswith("torch.nn.functional."):
            call = term.node
        if call is not None:
            found = script.argument(call, "ignore_index")
            return bool(found.given)
    return False
