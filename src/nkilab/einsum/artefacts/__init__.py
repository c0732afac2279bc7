"""What comes with a kernel: a test, a benchmark, a profile driver, a notebook of all."""
