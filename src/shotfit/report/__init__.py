"""Records to tables: the paper's, beside its printed numbers, and those of any runs.

`protocol` says which records belong together, `tables`, `suite`, `across` and `paired` make reports
of them, `layout` lays a report out once for all formats, `render` and `render_html` write it.
"""

from shotfit.report.across import across_report
from shotfit.report.paired import compare_report
from shotfit.report.render import FORMATS, render
from shotfit.report.suite import runs_report, suite_report
from shotfit.report.tables import Report, paper_report

__all__ = [
    "FORMATS",
    "Report",
    "across_report",
    "compare_report",
    "paper_report",
    "render",
    "runs_report",
    "suite_report",
]
