"""Batch norms of each kind in one process, against torch's own."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from paceline.records.errors import PacelineError
from paceline.tasks.models.cnn import FashionCNN
from paceline.train.choices import BATCH_NORMS
from paceline.train.norms import convert, sync
from paceline.train.norms.convert import synchronises, with_batch_norm
from paceline.train.optim.build import parameter_groups

CPU = torch.device("cpu")
SHAPES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "1d": (nn.BatchNorm1d, (13, 5)),
    "1d of sequences": (nn.BatchNorm1d, (13, 5, 3)),
    "2d": (nn.BatchNorm2d, (13, 5, 4, 3)),
    "3d": (nn.BatchNorm3d, (13, 5, 2, 3, 4)),
}
LAYOUTS = {"2d": torch.channels_last, "3d": torch.channels_last_3d}
SETTINGS = [
    {},
    {"affine": False},
    {"momentum": None},
    {"momentum": 0.3, "eps": 1e-2},
    {"track_running_stats": False},
]


def changed(model: nn.Module, kind: str, size: int = 4, momentum: Callable[[float], float] | None = None) -> nn.Module:
    """A copy of the model with batch norms of a kind."""
    return with_batch_norm(copy.deepcopy(model), kind, ghost_size=size, momentum=momentum, device=CPU)


def all_pairs(same: Callable[[Tensor, Tensor], bool], ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> bool:
    """Whether tensor after tensor is the same, and there are as many."""
    return all(same(a, b) for a, b in zip(ours, theirs, strict=True))


def norm_of(shape: str, **settings: object) -> nn.Module:
    """A batch norm in float64 with weights that are not 1 and 0, and statistics that are not new."""
    module, size = SHAPES[shape]
    norm = module(size[1], **settings).double()
    generator = torch.Generator().manual_seed(1)
    for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
        if tensor is not None:
            tensor.data = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) + 0.5
    return norm


def values_of(shape: str, seed: int = 2) -> Tensor:
    """Float64 values with a mean of 3 and a deviation of 2."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(SHAPES[shape][1], generator=generator, dtype=torch.float64) * 2 + 3


def gradients(norm: nn.Module, values: Tensor) -> list[Tensor]:
    """Output, and gradients of the values and the parameters, of a loss that weighs every output differently."""
    leaf = values.detach().clone().requires_grad_()
    output = norm(leaf)
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    found = torch.autograd.grad((output * weights).sum() + output.pow(3).sum(), [leaf, *norm.parameters()])
    return [output.detach(), *found]


def close(ours: Tensor, theirs: Tensor, limit: float = 1e-13) -> bool:
    """Whether the difference is small beside the whole."""
    apart = (ours.double() - theirs.double()).norm()
    return ours.dtype == theirs.dtype and bool(apart <= limit * theirs.double().norm() + 1e-300)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_synchronised_norm_alone_is_torchs(shape: str, settings: dict[str, object]) -> None:
    """Outputs, gradients and running statistics over three batches in training, then eval, which is torch's bits."""
    theirs = norm_of(shape, **settings)
    ours = changed(theirs, "sync")

    for seed in range(3):
        values = values_of(shape, seed)
        assert all_pairs(close, gradients(ours, values), gradients(theirs, values))
    assert all_pairs(close, ours.buffers(), theirs.buffers())

    ours.load_state_dict(theirs.state_dict())
    outputs = [module.eval()(values_of(shape)) for module in (ours, theirs)]
    assert torch.equal(*outputs)
    assert all_pairs(torch.equal, ours.buffers(), theirs.buffers())


@pytest.mark.parametrize("kind", ["sync", "ghost"])
def test_statistics_of_the_batch_without_an_update_where_tracking_is_turned_off(kind: str) -> None:
    """`track_running_stats = False` on a module in training, as torch's own takes it: curvature is measured so."""
    norm = norm_of("2d")
    ours = changed(norm, kind)
    ours.track_running_stats = False
    before = [buffer.clone() for buffer in ours.buffers()]

    output = ours(values_of("2d"))

    assert not close(output, norm.eval()(values_of("2d")), 1e-2)
    assert all_pairs(torch.equal, ours.buffers(), before)


@pytest.mark.parametrize("kind", ["sync", "ghost"])
@pytest.mark.parametrize("shape", LAYOUTS)
def test_channels_last_stays_channels_last(shape: str, kind: str) -> None:
    """Output and gradient have the layout of the values, and the numbers do not depend on it."""
    norm = changed(norm_of(shape), kind)
    values = values_of(shape)
    leaf = values.to(memory_format=LAYOUTS[shape]).requires_grad_()

    output = norm(leaf)
    output.backward(values_of(shape, 9))  # itself channels first, as a careless layer above may hand it down

    assert output.is_contiguous(memory_format=LAYOUTS[shape])
    assert leaf.grad.is_contiguous(memory_format=LAYOUTS[shape])
    plain = values.clone().requires_grad_()
    norm(plain).backward(values_of(shape, 9))
    assert close(output, norm(plain))
    assert close(leaf.grad, plain.grad)


@pytest.mark.parametrize("kind", ["sync", "ghost"])
@pytest.mark.parametrize("affine", [True, False])
def test_under_autocast_values_have_16_bits_and_statistics_32(kind: str, affine: bool) -> None:
    """As torch's own: 16-bit outputs, float32 gradients of the weights, statistics to float32's precision."""
    torch.manual_seed(5)
    theirs = nn.BatchNorm2d(6, affine=affine)
    ours = changed(theirs, kind, 8)
    values = (torch.randn(16, 6, 5, 5) * 3 + 20).bfloat16().to(memory_format=torch.channels_last)
    above = torch.randn(16, 6, 5, 5).bfloat16()
    leaves = [values.clone().requires_grad_() for _ in range(2)]

    with torch.autocast("cpu", torch.bfloat16):
        outputs = [norm(leaf) for norm, leaf in zip((ours, theirs), leaves, strict=True)]
    for output in outputs:
        output.backward(above)

    exact = values.double()
    groups = [exact] if kind == "sync" else exact.split(8)
    mean = torch.stack([g.mean((0, 2, 3)) for g in groups]).mean(0)
    variance = torch.stack([g.var((0, 2, 3)) for g in groups]).mean(0)
    assert close(ours.running_mean.double(), 0.1 * mean, 1e-6)
    assert close(ours.running_var.double(), 0.9 + 0.1 * variance, 1e-5)
    assert outputs[0].dtype == outputs[1].dtype == leaves[0].grad.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.float32 for p in ours.parameters())
    if kind == "sync":  # 8 bits: each rounding is up to 1/256
        assert close(outputs[0].float(), outputs[1].float(), 2e-3)
        assert close(leaves[0].grad.float(), leaves[1].grad.float(), 6e-3)


def test_a_second_derivative_is_refused_in_words() -> None:
    """It would need collectives of its own; leaving out what goes through the norm would be a wrong Hessian."""
    norm = changed(norm_of("1d"), "sync")
    values = values_of("1d").requires_grad_()

    with pytest.raises(PacelineError, match="has no second derivative"):
        torch.autograd.grad(norm(values).pow(3).sum(), values, create_graph=True)


def test_statistics_are_put_together_without_cancelling() -> None:
    """Parts with a mean of 1e8 and a deviation of 1: sums of squares in float64 would leave one digit."""
    parts = [
        torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) + 1e8 for n in (5, 0, 9, 1)
    ]
    rows = [
        torch.cat([torch.tensor([float(len(p))]), p.mean(0), p.var(0, correction=0) * len(p)])
        if len(p)
        else torch.zeros(7, dtype=torch.float64)
        for p in parts
    ]

    found = sync.combine([row.double() for row in rows])

    whole = torch.cat(parts)
    assert found.count == 15
    assert close(found.mean, whole.mean(0), 1e-15)
    assert close(found.squares, (whole - 1e8).var(0, correction=0) * 15, 1e-7)
    nothing = sync.combine([torch.zeros(7, dtype=torch.float64)])
    assert (nothing.count, nothing.squares.tolist()) == (0, [0, 0, 0])


def test_one_value_a_channel_cannot_be_normalised_and_is_refused() -> None:
    """In words, as its variance is 0."""
    norm = changed(norm_of("1d"), "sync")

    with pytest.raises(PacelineError, match="cannot normalise a single sample"):
        norm(values_of("1d")[:1])


def test_another_number_of_dimensions_is_refused_as_torch_does() -> None:
    """The check of each shape stays."""
    for kind, shape in itertools.product(("sync", "ghost"), ("2d", "3d")):
        with pytest.raises(ValueError, match="expected"):
            changed(norm_of(shape), kind)(values_of("1d"))


# -- ghost -----------------------------------------------------------------------------------------------------------


@given(samples=st.integers(0, 300), size=st.integers(2, 40))
def test_groups_take_every_sample_once_and_none_is_small(samples: int, size: int) -> None:
    """All of the stated size but the last, which has more than half and at most one and a half times of it."""
    sizes = convert.group_sizes(samples, size)

    assert sum(sizes) == samples
    if samples >= size:
        assert all(found == size for found in sizes[:-1])
        assert size < 2 * sizes[-1] <= 3 * size
        assert min(sizes) >= 2
    else:
        assert sizes == [samples]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_ghost_norm_is_torchs_on_each_group(shape: str, settings: dict[str, object]) -> None:
    """Bit for bit, 13 samples in groups of 4, 4 and 5, gradients included; eval is torch's."""
    theirs = norm_of(shape, **settings)
    ours = changed(theirs, "ghost", 4)
    values = values_of(shape)
    leaf, parts = values.clone().requires_grad_(), [v.clone().requires_grad_() for v in values.split([4, 4, 5])]
    above = values_of(shape, 9)

    output = ours(leaf)
    output.backward(above)
    chunks = [copy.deepcopy(theirs)(part) for part in parts]
    torch.cat(chunks).backward(above)

    assert torch.equal(output, torch.cat(chunks))
    assert torch.equal(leaf.grad, torch.cat([part.grad for part in parts]))
    assert torch.equal(ours.eval()(values), copy.deepcopy(ours).eval()(values))
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(values), theirs.eval()(values))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_of_groups_move_once_a_forward_by_their_weighted_mean(momentum: float | None) -> None:
    """10 samples in groups of 4, 4 and 2 would be 4 and 6: the last joins; unbiased variances; by hand."""
    norm = nn.BatchNorm1d(3, momentum=momentum).double()
    ours = changed(norm, "ghost", 4)
    mean, variance = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)

    for step in range(1, 4):
        values = torch.randn(10, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64) + step
        ours(values)
        first, second = values[:4], values[4:]
        share = 1 / step if momentum is None else momentum
        mean = (1 - share) * mean + share * (0.4 * first.mean(0) + 0.6 * second.mean(0))
        variance = (1 - share) * variance + share * (0.4 * first.var(0) + 0.6 * second.var(0))

    assert close(ours.running_mean, mean)
    assert close(ours.running_var, variance)
    assert ours.num_batches_tracked == 3


def test_a_batch_of_one_group_is_torchs_to_the_last_bit_of_its_statistics() -> None:
    """There is nothing to average."""
    theirs = norm_of("2d")
    ours = changed(theirs, "ghost", 100)

    found, expected = gradients(ours, values_of("2d")), gradients(theirs, values_of("2d"))

    assert all_pairs(torch.equal, [*found, *ours.buffers()], [*expected, *theirs.buffers()])


def test_groups_and_the_whole_batch_differ_as_much_as_has_been_measured() -> None:
    """64 samples of N(1, 2) in 4 groups: the largest difference is some 0.4 (0.388 with one seed), no rounding."""
    values = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)) * 2 + 1
    norm = nn.BatchNorm1d(8)

    apart = (changed(norm, "ghost", 16)(values) - norm(values)).abs().max().item()

    assert 0.2 < apart < 1.0


# -- conversion ------------------------------------------------------------------------------------------------------


def test_a_conversion_changes_nothing_but_the_kind() -> None:
    """Same module and parameter objects, names, values, mode, hooks and optimizer groups; state fits both ways."""
    for kind in BATCH_NORMS:
        model = FashionCNN().to(memory_format=torch.channels_last)
        model.features[5].eval()
        calls = []
        model.features[1].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        modules, state = list(model.modules()), copy.deepcopy(model.state_dict())
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        groups = [len(group["params"]) for group in parameter_groups(model, 0.1)]

        made = with_batch_norm(model, kind, ghost_size=8, momentum=None, device=CPU)

        assert made is model
        assert [id(module) for module in made.modules()] == [id(module) for module in modules]
        assert all(parameters[name] is p for name, p in made.named_parameters())
        assert all(buffers[name] is b for name, b in made.named_buffers())
        assert list(made.state_dict()) == list(state)
        assert all(torch.equal(a, b) for a, b in zip(made.state_dict().values(), state.values(), strict=True))
        assert [made.features[i].training for i in (1, 5)] == [True, False]
        assert [len(group["params"]) for group in parameter_groups(made, 0.1)] == groups
        assert isinstance(made.features[1], nn.BatchNorm2d)
        assert (type(made.features[1]) is nn.BatchNorm2d) == (kind == "local")
        made(torch.randn(16, 1, 28, 28))
        assert calls == [1]
        FashionCNN().load_state_dict(made.state_dict())
        assert synchronises(made) == (kind == "sync")


def test_torchs_synchronised_norm_is_made_ours_on_a_cpu_and_stays_torchs_on_cuda() -> None:
    """And ours becomes torch's where the model will be on CUDA."""
    model = nn.Sequential(nn.SyncBatchNorm(3), nn.BatchNorm1d(3))
    values = torch.randn(6, 3)

    ours = changed(model, "sync")
    theirs = with_batch_norm(copy.deepcopy(model), "sync", ghost_size=2, momentum=None, device=torch.device("cuda"))

    assert torch.allclose(ours[0](values), model[1](values), atol=1e-6)
    assert [type(module) for module in theirs] == [nn.SyncBatchNorm] * 2
    assert [module.process_group for module in theirs] == [None] * 2
    assert synchronises(theirs)
    assert changed(model, "ghost")[0](values).shape == values.shape


@pytest.mark.parametrize("kind", BATCH_NORMS)
def test_momentum_is_made_from_each_modules_own_and_none_stays(kind: str) -> None:
    """A mean over all updates has no momentum that could be scaled; a shared module is scaled once."""
    shared = nn.BatchNorm1d(3, momentum=0.1)
    model = nn.Sequential(shared, nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3, momentum=0.25), shared)

    made = changed(model, kind, momentum=lambda own: own * 2)

    assert [module.momentum for module in made] == [0.2, None, 0.5, 0.2]


class Activated(nn.BatchNorm2d):
    """A norm that does more."""

    def forward(self, values: Tensor) -> Tensor:
        """With a ReLU."""
        return torch.relu(super().forward(values))


@pytest.mark.parametrize(
    ("model", "kind", "size", "words"),
    [
        (nn.Linear(2, 2), "sync", 4, "--batch-norm sync has nothing to change"),
        (nn.Sequential(nn.LayerNorm(3)), "ghost", 4, "--batch-norm ghost has nothing to change"),
        (nn.Sequential(nn.BatchNorm2d(2), Activated(2)), "sync", 4, "cannot change the layer 1, a Activated"),
        (Activated(2), "ghost", 4, "cannot change the layer that is the model, a Activated"),
        (nn.BatchNorm1d(2), "ghost", 1, "--ghost-size 1 is out of range"),
        (nn.BatchNorm1d(2), "group", 4, "--batch-norm group is unknown"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_left_as_it_was(
    model: nn.Module, kind: str, size: int, words: str
) -> None:
    """A layer whose forward does more would lose that in silence."""
    classes = [type(module) for module in model.modules()]

    with pytest.raises(PacelineError) as caught:
        with_batch_norm(model, kind, ghost_size=size, momentum=lambda own: own / 2, device=CPU)

    assert words in caught.value.what
    assert caught.value.hint
    assert [type(module) for module in model.modules()] == classes
    assert all(getattr(module, "momentum", 0.1) == 0.1 for module in model.modules())


def test_a_model_without_batch_norm_stays_as_it_is_with_the_local_kind() -> None:
    """It is the default."""
    model = nn.Linear(2, 2)

    assert with_batch_norm(model, "local", ghost_size=0, momentum=lambda own: own / 2, device=CPU) is model
    assert not synchronises(model)
