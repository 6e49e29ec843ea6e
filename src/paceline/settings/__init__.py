"""A verb's settings: declared once as a dataclass, from which flags, checks, run.json and `--resume` are derived."""
