"""A batch of any form on the device of the model, in the dtype of its inputs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, channels_last
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from paceline.tasks.data.arrays import Like


def to_device(batch: Any, like: Like) -> Any:
    """A batch of any form on the device of `like`, its floating-point tensors in the dtype of `like`.

    Args:
        batch: tensors in tuples, lists, dictionaries and packed sequences. Other objects go to the device by their
            own method `to`, where they have one, and otherwise stay.
        like: device, dtype and memory layout.
    """

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            dtype = like.dtype if leaf.is_floating_point() else leaf.dtype
            there = leaf.to(like.device, dtype, non_blocking=True)
            if like.channels_last and there.ndim == 4:
                there = there.contiguous(memory_format=channels_last)
            return there
        if isinstance(leaf, PackedSequence):
            dtype = like.dtype if leaf.data.is_floating_point() else leaf.data.dtype
            return leaf.to(like.device, dtype)  # type: ignore[arg-type]  # lengths stay on the CPU, as torch wants them
        if like.device.type != "cpu" and callable(getattr(leaf, "to", None)):
            return leaf.to(like.device)
        return leaf

    return tree_map(move, batch, is_leaf=lambda node: isinstance(node, PackedSequence))
