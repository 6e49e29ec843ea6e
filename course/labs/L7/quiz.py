"""The quiz of lab 7."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def efficiency(draw: np.random.Generator) -> Question:
    """Base of two."""
    base, factor = int(draw.choice([2, 4])), int(draw.choice([4, 8]))
    one = int(draw.integers(300, 700))
    rate = round(one * base * factor * float(draw.uniform(0.6, 0.9)))
    return Number(
        f"{base} workers do {one * base:,} samples a second, {base * factor} do {rate:,}. "
        f"What is the efficiency, with {base} as the base?",
        rate / (one * base * factor),
        f"one worker does {rate / (base * factor):.1f} instead of {one}.",
    )


@asks
def ring_time(draw: np.random.Generator) -> Question:
    """2 (W - 1) (alpha + beta n / W)."""
    workers, megabytes = int(draw.choice([4, 8, 16])), int(draw.integers(50, 400))
    latency_us, rate = int(draw.integers(10, 50)), int(draw.choice([5, 10, 20]))
    seconds = 2 * (workers - 1) * (latency_us * 1e-6 + megabytes / 1e3 / rate / workers)
    return Number(
        f"A ring all-reduce of {megabytes} MB over {workers} workers, {latency_us} microseconds and {rate} GB/s for a "
        "message between neighbours: how many milliseconds?",
        1e3 * seconds,
        f"2 x {workers - 1} x ({latency_us} us + {megabytes} MB / {workers} / {rate} GB/s).",
        tolerance=0.02,
        unit="ms",
    )


@asks
def slow(draw: np.random.Generator) -> Question:
    """Who waits longest."""
    rank = int(draw.integers(1, 4))
    return Choice(
        f"Four processes. Rank {rank} spends 2 ms in each all-reduce, the others 30 ms. Who is slow?",
        f"rank {rank}",
        "It comes last, so it hardly waits; the others wait for it.",
        {
            "the three others": "They are in the collective for long because they came early.",
            "nobody: the network is": "Then all would spend about the same time in it.",
            "rank 0, which does the logging": "It waits as long as two others.",
        },
    )


@asks
def bytes_sent(draw: np.random.Generator) -> Question:
    """Activations or gradients."""
    parameters, batch, width = int(draw.integers(2, 9)), int(draw.choice([256, 512])), int(draw.choice([1024, 2048]))
    return Number(
        f"A network of {parameters} million float32 parameters is split where {width} activations a sample pass. At a "
        f"batch of {batch}, how many MB go over the cut in a step, both ways?",
        2 * batch * width * 4 / 1e6,
        f"2 x {batch} x {width} x 4 bytes, whatever the number of parameters.",
        unit="MB",
    )


@asks
def strong(draw: np.random.Generator) -> Question:
    """Weak and strong."""
    workers = int(draw.choice([8, 16, 32]))
    return Choice(
        f"From 1 to {workers} workers the batch of each stays 64; samples a second grow {workers - 1}-fold. This is",
        "weak scaling, nearly perfect",
        "The batch of each worker is fixed, so the global batch grows with them.",
        {
            "strong scaling, nearly perfect": "The global batch did not stay what it was.",
            f"a training that is {workers - 1} times as fast": "It may need more samples with the larger batch.",
            "an efficiency that cannot be told": f"It is {workers - 1} / {workers}.",
        },
    )
