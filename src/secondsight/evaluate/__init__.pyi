from .evaluation import Evaluation as Evaluation
from .evaluation import Items as Items
from .report import ClassFigures as ClassFigures
from .report import Interval as Interval
from .report import Report as Report
from .scoring import retrieval as retrieval
