"""Judge embeddings: exact retrieval metrics at the speed of one matrix product, and a page that shows what they mean.

report = evaluate.retrieval(embeddings, labels)     # report.recall[1], report.map_at_r, print(report)
"""

from secondsight.evaluate.report import ClassFigures, Interval, Report
from secondsight.evaluate.scoring import retrieval

__all__ = ["ClassFigures", "Interval", "Report", "retrieval"]
