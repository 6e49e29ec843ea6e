"""Pairs of a script before and after it was made distributed; a wrong one is given as edits of the right one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAIRS = Path(__file__).parent


@dataclass(frozen=True)
class Pair:
    """OLD for one device, a right NEW for N ranks, and edits that make it subtly wrong.

    Attributes:
        slug: folder of `old.py` and `new.py`.
        style: of both scripts.
        edits: texts of the right NEW, each found once, and what stands there in the wrong one.
        faults: ids of the catalog of faults that name the wrong one, the main one first.
        why: what is wrong, in words.
        args: of both scripts.
        world: ranks of NEW.
    """

    slug: str
    style: str
    edits: tuple[tuple[str, str], ...]
    faults: tuple[str, ...]
    why: str
    args: tuple[str, ...] = ()
    world: int = 2

    @property
    def folder(self) -> Path:
        """Of both scripts and what they import."""
        return PAIRS / self.slug

    def wrong(self) -> str:
        """The text of the wrong NEW.

        Raises:
            ValueError: the text of an edit is not found once.
        """
        text = (self.folder / "new.py").read_text(encoding="utf-8")
        for found, instead in self.edits:
            if text.count(found) != 1:
                raise ValueError(f"{self.slug}: found {text.count(found)} times: {found}")
            text = text.replace(found, instead)
        return text


PAIRS_OF_SCRIPTS = (
    Pair(
        slug="spirals_flat",
        style="module level",
        edits=(("LR = 0.05\n", "LR = 0.05 * world_size\n"),),
        faults=("F32",),
        why="the learning rate is scaled, the global batch is not",
    ),
    Pair(
        slug="tabular_functions",
        style="functions and argparse, 4 ranks",
        edits=(
            ("DistributedSampler(train_set, seed=args.seed)", "DistributedSampler(train_set, shuffle=False)"),
            ("        train_sampler.set_epoch(epoch)\n", ""),
        ),
        faults=("F05", "F06"),
        why="the sampler takes over from shuffle=True and does not shuffle",
        world=4,
    ),
    Pair(
        slug="reviews_trainer",
        style="Trainer class, accumulation with no_sync, autocast",
        edits=(
            (
                "                (loss / self.config.accumulate).backward()\n",
                "                (loss / self.config.accumulate).backward()\n"
                "                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)\n",
            ),
            (
                "            if update:\n"
                "                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)\n",
                "            if update:\n",
            ),
        ),
        faults=("F30",),
        why="gradients of a rank are clipped in no_sync, before they are reduced",
    ),
    Pair(
        slug="imagenet_worker",
        style="imagenet example, 3 ranks",
        edits=(("shuffle=False, drop_last=True)", "shuffle=False)"),),
        faults=("F70",),
        why="the validation sampler pads 100 images to 102",
        world=3,
    ),
    Pair(
        slug="torchvision_reference",
        style="torchvision references, utils in the same folder",
        edits=(
            (
                "        lr_scheduler.step()\n",
                "        for _ in range(utils.get_world_size()):\n            lr_scheduler.step()\n",
            ),
        ),
        faults=("F33",),
        why="the schedule counts the steps of all processes",
    ),
    Pair(
        slug="nanogpt_get_batch",
        style="nanoGPT, no loader, accumulation divided by ranks",
        edits=(("torch.manual_seed(1337 + seed_offset)", "torch.manual_seed(1337)"),),
        faults=("F64", "F02", "F21"),
        why="all ranks draw the same batches",
    ),
    Pair(
        slug="tagger_padding",
        style="transformer, loss per token, padded batches, Adam",
        edits=(
            (
                "            loss.backward()\n",
                "            loss.backward()\n"
                "            for parameter in model.parameters():\n"
                "                parameter.grad /= world\n",
            ),
        ),
        faults=("F129", "F23", "F24"),
        why="gradients are divided by the world size after DDP has done so; Adam hides it",
    ),
    Pair(
        slug="cnn_augmented",
        style="convolutions, batch norm, augmentation",
        edits=(('"state_dict": model.module.state_dict()', '"state_dict": model.state_dict()'),),
        faults=("F96",),
        why="the checkpoint holds the names of the wrapped model",
    ),
    Pair(
        slug="dcgan_two_optimizers",
        style="GAN, two optimizers",
        edits=(
            (
                "batch_size=opt.batchSize // world, sampler=sampler)",
                "batch_size=opt.batchSize // world, sampler=sampler, drop_last=True)",
            ),
        ),
        faults=("F15", "F17"),
        why="the last batch of an epoch is dropped",
    ),
    Pair(
        slug="ema_embeddings",
        style="endless batches, average of weights, logging",
        edits=(
            (
                "            ema.update_parameters(model.module)\n",
                "            if rank == 0:\n                ema.update_parameters(model.module)\n",
            ),
        ),
        faults=("F61",),
        why="the average of weights moves on rank 0 alone, and all ranks evaluate theirs",
    ),
)
