"""A kernel's run as a program: forms, rows, storages, loop positions and source lines."""
