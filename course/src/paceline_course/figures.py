"""A figure that the notebooks of all labs use: what was predicted beside what came out."""

from __future__ import annotations

from collections.abc import Mapping


def pairs(found: Mapping[str, tuple[float | None, float]], units: Mapping[str, str]) -> None:
    """Draw each prediction with its result, a row each, from 0; rows have scales of their own, as units differ.

    Args:
        found: {name: (predicted or None, measured)}; what was not predicted is not drawn.
        units: {name: unit}.
    """
    drawn = {name: (said, came) for name, (said, came) in found.items() if said is not None}
    if not drawn:
        return
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(len(drawn), figsize=(6.4, 0.35 + 0.85 * len(drawn)), squeeze=False, layout="constrained")
    for axis, (name, (said, came)) in zip(axes[:, 0], drawn.items(), strict=True):
        axis.plot([said, came], [0, 0], color="0.7", linewidth=2, zorder=1)
        axis.plot(
            said,
            0,
            "D",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor="C1",
            markeredgewidth=2,
            label="you said",
            zorder=3,
        )
        axis.plot(came, 0, "o", markersize=7, color="C0", label="measured", zorder=2)
        low, high = min(0.0, said, came), max(0.0, said, came)
        room = 0.06 * (high - low or 1.0)
        axis.set(xlim=(low - room, high + room), ylim=(-1, 1), yticks=[])
        axis.set_title(f"{name.replace('_', ' ')}, {units.get(name, '')}".rstrip(", "), fontsize=9, loc="left")
        axis.spines[["left", "right", "top"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.9))
    plt.show()
