"""Specifications with a mapping: what is given is checked, repaired where its meaning is clear, compiled."""
