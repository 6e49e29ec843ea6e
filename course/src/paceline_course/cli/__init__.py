"""The commands of `paceline learn`, one file a command or group. The only place of the course that knows typer."""
