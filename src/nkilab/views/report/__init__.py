"""The report: one HTML file that holds a run and everything needed to look at it."""

from .page import report_html as report_html
