"""Paceline: take PyTorch training from one device to many, and prove that nothing was lost."""

__version__ = "0.1.0"
