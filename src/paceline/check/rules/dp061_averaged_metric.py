"""A metric that is no mean of samples is averaged over ranks.

What it does:
    Looks for AUC, F1, average precision, perplexity and similar metrics that are computed from one rank's predictions
    and then reduced over ranks.

Why is this bad:
    The AUC of the whole data set is not the mean of the AUCs of its parts; the same holds for F1, precision, mAP, BLEU
    and the exponential of a loss. The number depends on how the data are split, and changes with the number of ranks.

Repair:
    Gather the predictions and labels, or reduce what the metric is made of: counts, a confusion matrix, the sum of
    losses. Compute the metric then.

Known problems:
    Metrics are recognized by the functions of scikit-learn, and by the names of functions of the script.

References:
    F73. https://github.com/RUCAIBox/RecBole/pull/1872
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.rank_shares import terms_of
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Spread
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite

_METRICS = frozenset(
    (
        "roc_auc_score", "average_precision_score", "f1_score", "precision_score", "recall_score", "fbeta_score",
        "matthews_corrcoef", "cohen_kappa_score", "balanced_accuracy_score", "r2_score", "jaccard_score", "ndcg_score",
        "auc", "roc_auc", "compute_auc", "f1", "compute_f1", "average_precision", "mean_average_precision",
        "compute_map", "bleu", "corpus_bleu", "compute_bleu", "spearmanr", "pearsonr", "macro_f1", "mean_iou",
        "auroc", "binary_auroc", "multiclass_auroc", "binary_f1_score", "multiclass_f1_score",
    )
)  # fmt: skip
_EXPONENTIALS = ("math.exp", "torch.exp", "numpy.exp")
_REDUCES = tuple(f"torch.distributed.{name}" for name in ("all_reduce", "reduce"))


class AveragedMetric(Rule):
    """Means over ranks of metrics that are no means."""

    code, name, topic = "DP061", "averaged-metric", "evaluation"
    faults = ("F73",)
    severity = "warning"
    valid = {
        "gathered predictions": """
            from sklearn.metrics import roc_auc_score

            def gathered(part):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)

            dist.init_process_group("gloo")
            scores, labels = gathered(torch.rand(100)), gathered(torch.ones(100))
            print(roc_auc_score(labels, scores))
        """,
        "the mean of a loss": """
            dist.init_process_group("gloo")
            loss = torch.tensor([3.0, 100.0])
            dist.all_reduce(loss)
            perplexity = torch.exp(loss[0] / loss[1])
        """,
    }
    invalid = {
        "AUC": """
            from sklearn.metrics import roc_auc_score

            dist.init_process_group("gloo")
            data = Numbers()
            model, scores, labels = DDP(nn.Linear(2, 1)), [], []
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
                scores.append(model(x))
                labels.append(y > 1)
            auc = torch.tensor(roc_auc_score(torch.cat(labels), torch.cat(scores)))  # here
            dist.all_reduce(auc)
            auc /= dist.get_world_size()
        """,
        "perplexity": """
            def reduced(value):
                value = torch.tensor(value)
                dist.all_reduce(value)
                return value.item() / dist.get_world_size()

            def evaluate(model, loader):
                total = 0.0
                for x, y in loader:
                    total += F.mse_loss(model(x), y).item()
                perplexity = np.exp(total / len(loader))  # here
                return reduced(perplexity)

            dist.init_process_group("gloo")
            data = Numbers()
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(data, sampler=DistributedSampler(data)))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        local = None
        reported: set[ast.AST] = set()
        for site in script.calls(*_REDUCES):
            for metric in _metrics(script, site):
                local = local or LocalValues.of(script)
                if metric in reported or any(_is_combined(local, each) for each in metric.args):
                    continue
                reported.add(metric)
                yield Violation(
                    metric,
                    f"{last_name(metric.func)} is computed from this rank's part of the data, and line "
                    f"{site.node.lineno} averages it over ranks; that is not the metric of the whole",
                    "gather predictions and labels first, or reduce the counts that the metric is made of",
                )


def _metrics(script: Script, site: CallSite) -> Iterator[ast.Call]:
    """Metrics that a collective is given."""
    given = script.argument(site.node, "tensor", 0).given
    for each in given:
        for term in terms_of(script, each.node):
            for node in walk(term):
                if isinstance(node, ast.Call) and _is_metric(script, node):
                    yield node
                elif isinstance(node, ast.Name) and node is not term:
                    for inner in terms_of(script, node, 4):
                        if isinstance(inner, ast.Call) and _is_metric(script, inner):
                            yield inner


def _is_metric(script: Script, call: ast.Call) -> bool:
    name = last_name(call.func)
    if name in _METRICS:
        return isinstance(call.func, ast.Name) or name.endswith("_score") or _of_library(script, call)
    if any(each in _EXPONENTIALS for each in script.program.callee_names(call)):
        statement = script.function_of(call).module.statement(call)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return any("perplexity" in ast.unparse(each).lower() or "ppl" in ast.unparse(each).lower() for each in targets)
    return False


def _of_library(script: Script, call: ast.Call) -> bool:
    return any(
        each.startswith(("sklearn.", "scipy.", "torchmetrics.", "torcheval."))
        for each in script.program.callee_names(call)
    )


def _is_combined(local: LocalValues, node: ast.expr) -> bool:
    """True if what a metric is computed from passed a collective."""
    return local.origin(node).spread is Spread.REDUCED
