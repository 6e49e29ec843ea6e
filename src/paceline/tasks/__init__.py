"""Tasks: what is trained, and on what data."""
