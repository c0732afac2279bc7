"""Views of a timeline: summary, text."""
