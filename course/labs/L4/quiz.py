"""The quiz of lab 4."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def global_batch(draw: np.random.Generator) -> Question:
    """Micro-batch x micro-batches x ranks."""
    per_rank, ranks, micro = int(draw.choice([16, 32, 48])), int(draw.integers(2, 9)), int(draw.integers(2, 6))
    return Number(
        f"{ranks} ranks, {per_rank} samples a rank and micro-batch, {micro} micro-batches before a step: "
        "how many samples has one optimizer step?",
        ranks * per_rank * micro,
        f"{per_rank} x {micro} x {ranks}; this is the batch that the learning rate has to fit.",
        tolerance=0.0,
    )


@asks
def buckets(draw: np.random.Generator) -> Question:
    """Ceil of tensors per bucket."""
    tensors, fit = int(draw.integers(20, 60)), int(draw.integers(3, 8))
    return Number(
        f"{tensors} gradients of 1 MB each, buckets of at most {fit} MB: how many all-reduces has a step?",
        -(-tensors // fit),
        f"{fit} gradients fit into a bucket, and the last bucket may be smaller: {tensors} / {fit}, rounded up.",
        tolerance=0.0,
    )


@asks
def weights(draw: np.random.Generator) -> Question:
    """What is exchanged."""
    del draw
    return Choice(
        "Why are the weights of all ranks equal after 1,000 steps of DDP?",
        "they began equal, and every rank did the same update with the same averaged gradients",
        "Equal numbers through equal arithmetic stay equal, so weights need not be sent again.",
        {
            "DDP averages the weights after each step": "It never touches them after the first broadcast.",
            "rank 0 sends its weights to the others after each step": "That happens once, when DDP is constructed.",
            "the optimizer synchronises them in step()": "The optimizer knows nothing of other ranks.",
        },
    )


@asks
def when(draw: np.random.Generator) -> Question:
    """During backward."""
    del draw
    return Choice(
        "When does DistributedDataParallel reduce gradients?",
        "during backward, bucket by bucket, as soon as a bucket is full",
        "Hooks on the parameters start the buckets, so that most of the communication is hidden.",
        {
            "in optimizer.step()": "By then it is done: step only reads p.grad.",
            "during the next forward": "That would use gradients that are a step old.",
            "after backward, all at once": "That is the flat bucket of exercise L4.2; DDP starts earlier.",
        },
    )


@asks
def unequal(draw: np.random.Generator) -> Question:
    """The weight of a sample in a mean of means."""
    many, few = int(draw.integers(20, 40)), int(draw.integers(2, 6))
    return Number(
        f"Rank 0 has {many} samples, rank 1 has {few}, and both use the mean over their own. How many times as much "
        "does a sample of rank 1 count in the averaged gradient as one of rank 0?",
        many / few,
        f"each rank's mean counts half, so a sample counts 1 / (2 x {few}) there and 1 / (2 x {many}) here.",
    )
