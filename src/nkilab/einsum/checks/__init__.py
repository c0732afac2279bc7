"""What may be wrong with a specification, found before anything is compiled; the sentences are in `grades.py`."""
