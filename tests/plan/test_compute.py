"""What a training is in FLOP, days and money."""

from __future__ import annotations

import pytest

from paceline.plan.compute import Device, bill, pfs_days, training_flop, transformer_flop


def test_a_model_of_70_billion_parameters_on_1_4_trillion_tokens():
    """5.88e23 FLOP, 6,805.6 PF/s-days."""
    flop = transformer_flop(70e9, 1.4e12)

    assert flop == pytest.approx(5.88e23)
    assert pfs_days(flop) == pytest.approx(6805.6, rel=1e-4)


def test_a_bill_in_hours_and_money():
    """3 x 4 GFLOP x 1.28 M images x 90 epochs at 40 % of 100 TFLOP/s: 9.6 device-hours; at 80 % scaling 12."""
    device = Device("a device", peak=100e12, precision="bf16", utilisation=0.4, price=2.0)
    flop = training_flop(4e9, 1.28e6 * 90)

    alone, eight = bill(flop, device, 1), bill(flop, device, 8, efficiency=0.8)

    assert alone.device_hours == alone.hours == pytest.approx(9.6)
    assert alone.cost == pytest.approx(19.2)
    assert eight.device_hours == pytest.approx(12.0)
    assert eight.hours == pytest.approx(1.5)
    assert eight.cost == pytest.approx(24.0)
    assert bill(flop, Device("a device", 100e12, "bf16", 0.4), 1).cost is None
