"""Plugins for running public test suites against nkilab, their files untouched."""
