"""The command line: one file a verb, thin. The only place that knows typer and rich."""
