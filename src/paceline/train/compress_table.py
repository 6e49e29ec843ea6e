"""In which numbers gradients travel between workers, by name; nothing here imports torch."""

from __future__ import annotations

COMPRESSIONS: dict[str, str] = {
    "none": "the parameters' own, nothing is lost",
    "bf16": "bfloat16: half the bytes of float32 and its range, 8 bits of precision",
    "fp16": "float16: half the bytes, 11 bits of precision; a gradient above 65,504 ends the run",
}
