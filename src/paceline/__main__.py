"""`python -m paceline` is `paceline`; also what `torchrun -m paceline train ...` starts."""

from paceline.cli.main import main

main()
