"""The loops that are compared: they must see the right samples and do the right mathematics to be worth a number."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torchvision import transforms

from contestants.base import LR, MEAN, MOMENTUM, STD, WEIGHT_DECAY
from contestants.resident import index_batches, load, normalise
from datasets_here import synthetic_root
from harness import BENCH
from paceline.pool.warm_ranks import run_ranks
from paceline.tasks.models.cnn import FashionCNN

WORLD, BATCH, STEPS, SAMPLES = 2, 8, 3, 100


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A small data set in torchvision's layout."""
    return synthetic_root(tmp_path_factory.mktemp("data"), train=SAMPLES, test=20)


def hand_weights(root, bench, world, form):
    """On a rank: weights of the hand loop after some steps in fp32."""
    import sys

    sys.path.insert(0, bench)
    import torch.distributed as dist

    from contestants.base import Workload
    from contestants.hand_loop import HandLoop

    torch.set_num_threads(1)
    loop = HandLoop(bf16=False, form=form)
    loop.setup(Workload(dist.get_rank(), world, BATCH, root))
    loop.ready()
    loop.run(STEPS)
    return [p.detach().numpy() for p in loop.module().parameters()]


def reference_weights(root):
    """One process in float64: mean of the ranks' gradients, each with its own batch statistics; SGD written out."""
    torch.manual_seed(0)
    model = FashionCNN().double()
    images, labels = load(root)
    momenta = [torch.zeros_like(p) for p in model.parameters()]
    orders = [index_batches(SAMPLES, BATCH, rank, WORLD, 0) for rank in range(WORLD)]
    for _ in range(STEPS):
        gradients = [torch.zeros_like(p) for p in model.parameters()]
        for order in orders:
            chosen = next(order)
            pixels = (images[chosen].double() / 255 - MEAN) / STD
            loss = F.cross_entropy(model(pixels), labels[chosen])
            for total, own in zip(gradients, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                total += own / WORLD
        with torch.no_grad():
            for weight, gradient, momentum in zip(model.parameters(), gradients, momenta, strict=True):
                momentum.mul_(MOMENTUM).add_(gradient + WEIGHT_DECAY * weight)
                weight -= LR * momentum
    return list(model.parameters())


def test_the_hand_loop_does_the_mathematics_of_one_process(root):
    """Two ranks of the hand loop end at the weights of a float64 computation of the same steps in one process."""
    ranks = run_ranks(hand_weights, WORLD, root, str(BENCH), WORLD, {})

    expected = reference_weights(root)
    for per_rank in ranks:
        for weight, reference in zip(per_rank, expected, strict=True):
            difference = torch.from_numpy(weight).double() - reference
            assert difference.norm() <= 1e-4 * reference.norm().clamp(min=1e-2)


def test_every_form_of_the_model_computes_the_same_function():
    """Pooling before ReLU gives the same numbers bit for bit; flattening channels last does with permuted columns."""
    from contestants.hand_loop import _vary

    torch.manual_seed(1)
    model = FashionCNN().eval()
    images = torch.randn(5, 1, 28, 28)
    flattened = _vary(copy.deepcopy(model), relu_first=False, flatten_copy=True, inplace=True)
    columns = model.head[1].weight.detach().view(128, 7, 7, 64).permute(0, 3, 1, 2).reshape(128, -1)
    flattened.head[1].weight.data.copy_(columns)

    pooled = _vary(copy.deepcopy(model), relu_first=True, flatten_copy=False, inplace=False)

    assert torch.equal(pooled(images), model(images))
    torch.testing.assert_close(flattened(images), model(images))


def test_ranks_share_out_each_epoch_without_overlap():
    """In an epoch no sample comes twice, ranks never share one, and the next epoch has another order."""
    per_rank = [list(itertools.islice(index_batches(70, 8, rank, 4, 0), 4)) for rank in range(4)]  # 2 steps an epoch

    first = torch.cat([batch for batches in per_rank for batch in batches[:2]])
    second = torch.cat([batch for batches in per_rank for batch in batches[2:]])
    assert len(first) == len(second) == 2 * 4 * 8
    assert len(first.unique()) == len(second.unique()) == 2 * 4 * 8
    assert not torch.equal(first, second)


def test_a_batch_that_the_data_cannot_fill_is_refused():
    """Fewer samples than one global batch would loop for ever without a batch."""
    with pytest.raises(ValueError, match="fewer than one global batch"):
        next(index_batches(10, 8, 0, 2, 0))


def test_normalising_whole_tensors_is_what_torchvision_does_sample_by_sample(root):
    """Pixels equal torchvision's ToTensor and Normalize."""
    one_by_one = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    images, _ = load(root)

    prepared = normalise(images[:6])

    expected = torch.stack([one_by_one(image.squeeze(0).numpy()) for image in images[:6]])
    torch.testing.assert_close(prepared, expected)
