"""Data types, storages and strided views of them."""
