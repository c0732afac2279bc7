"""nkilab's own files: programs (NEFF) and timelines (NTFF)."""
