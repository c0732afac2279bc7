"""What may be wrong with a specification, found before it is compiled; the sentences are in `grades.py`."""
