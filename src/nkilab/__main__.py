"""`python -m nkilab`."""

from .cli import main

main(prog_name="nkilab")
