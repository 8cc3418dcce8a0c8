"""`python -m deskroll`."""

from deskroll.cli.main import main

main()
