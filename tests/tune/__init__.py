"""Tests of `nkilab.tune`."""
