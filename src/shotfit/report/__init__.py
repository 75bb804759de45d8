"""Records to tables: the paper's, beside its printed numbers, and the embedded suite's.

`protocol` says which records belong together, `tables` and `suite` make reports of them, `layout`
lays a report out once for all formats, `render` and `render_html` write it.
"""

from shotfit.report.render import FORMATS, render
from shotfit.report.suite import suite_report
from shotfit.report.tables import Report, paper_report

__all__ = ["FORMATS", "Report", "paper_report", "render", "suite_report"]
