"""The obvious single-process loop that bench/landscape.py compares with: what one writes from a blog post, not badly.

For each grid point the weights are set and the loss is summed over batches under `no_grad`; eigenvalues come from
scipy's `eigsh` with a Hessian-vector product by double backward. The data are prepared once and stay in memory (a
DataLoader with torchvision's transforms, as tutorials have it, is several times slower). Batch norm uses the statistics
of each batch, as `paceline landscape` does by default, so that both compute the same numbers.

    python bench/plain_landscape.py JOB.json     # keys: see `Job`; started by bench/landscape.py
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

Batches = list[tuple[Tensor, Tensor]]
MEAN, STD = 0.2860, 0.3530


@dataclass(frozen=True)
class Job:
    """What is computed.

    Attributes:
        weights: a model.safetensors of the small CNN.
        raw: the folder with the training set's idx files.
        directions: an .npy file, (2, P).
        points, span: of the square grid, -span to span along each direction.
        samples, curvature_samples: the first so many training images, for the surface and for the eigenvalues.
        batch: images at once; part of what is computed, since batch norm uses their statistics.
        top, tolerance: eigenvalues and their relative accuracy.
        out: where the arrays go, .npz.
    """

    weights: str
    raw: str
    directions: str
    points: int
    span: float
    samples: int
    curvature_samples: int
    batch: int
    top: int
    tolerance: float
    out: str


def batches_of(images: Tensor, labels: Tensor, batch: int) -> Batches:
    """(n, 28, 28) uint8 and (n,) as normalised batches."""
    ready = (images.float() / 255 - MEAN) / STD
    return list(zip(ready.unsqueeze(1).split(batch), labels.long().split(batch), strict=True))


def surface(model: nn.Module, batches: Batches, directions: Tensor, where: Sequence[float]) -> tuple[np.ndarray, ...]:
    """Loss and accuracy at w + x d_0 + y d_1 for x, y in `where`: (n, n) each, rows along y."""
    parameters = list(model.parameters())
    centre = [parameter.detach().clone() for parameter in parameters]
    one, two = (_like(direction, parameters) for direction in directions)
    loss, accuracy = np.zeros((2, len(where), len(where)))
    with torch.no_grad():
        for i, y in enumerate(where):
            for j, x in enumerate(where):
                for parameter, w, d, e in zip(parameters, centre, one, two, strict=True):
                    parameter.copy_(w + x * d + y * e)
                total, right, count = 0.0, 0, 0
                for images, labels in batches:
                    logits = model(images)
                    total += F.cross_entropy(logits, labels, reduction="sum").item()
                    right += (logits.argmax(1) == labels).sum().item()
                    count += len(labels)
                loss[i, j], accuracy[i, j] = total / count, right / count
        for parameter, w in zip(parameters, centre, strict=True):
            parameter.copy_(w)
    return loss, accuracy


def eigenvalues(model: nn.Module, batches: Batches, top: int, tolerance: float) -> tuple[np.ndarray, int]:
    """The largest `top` eigenvalues of the Hessian of the mean loss, descending, and how many products it took."""
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    count = sum(len(labels) for _, labels in batches)
    products = 0

    def product(vector: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        parts = _like(torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float32)).flatten(), parameters)
        total = torch.zeros(size)
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels, reduction="sum")
            slope = torch.autograd.grad(loss, parameters, create_graph=True)
            along = sum((g * v).sum() for g, v in zip(slope, parts, strict=True))
            total += torch.cat([part.flatten() for part in torch.autograd.grad(along, parameters)])
        return (total / count).numpy()

    operator = LinearOperator((size, size), matvec=product, dtype=np.float32)
    start = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    found = eigsh(operator, k=top, which="LA", tol=tolerance, v0=start, return_eigenvectors=False)
    return np.sort(found)[::-1], products


def _like(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


def run(job: Job) -> dict[str, float]:
    """All of it; returns seconds of each part, and writes the arrays."""
    from paceline.tasks.data.idx import open_idx
    from paceline.tasks.models.cnn import FashionCNN

    model = FashionCNN()
    model.load_state_dict(load_file(job.weights))
    model.train()  # batch norm by the batch's own statistics; there is no dropout
    raw = Path(job.raw)
    images = torch.from_numpy(np.array(open_idx(raw / "train-images-idx3-ubyte")[: job.samples]))
    labels = torch.from_numpy(np.array(open_idx(raw / "train-labels-idx1-ubyte")[: job.samples]))
    directions = torch.from_numpy(np.load(job.directions))
    few = job.curvature_samples
    curved = batches_of(images[:few], labels[:few], job.batch)
    batches = batches_of(images, labels, job.batch)
    where = np.linspace(-job.span, job.span, job.points)
    began = time.perf_counter()
    loss, accuracy = surface(model, batches, directions, where.tolist())
    between = time.perf_counter()
    values, products = eigenvalues(model, curved, job.top, job.tolerance)
    ended = time.perf_counter()
    np.savez(job.out, surface_loss=loss, surface_accuracy=accuracy, eigenvalues=values)
    return {"surface": between - began, "eigenvalues": ended - between, "products": products}


if __name__ == "__main__":
    print(json.dumps(run(Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))))
