"""What a program computes, one row at a time."""

from .step import execute as execute
