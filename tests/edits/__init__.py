"""Tests of nkilab.edits."""
