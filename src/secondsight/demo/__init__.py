"""The demo: pictures are indexed without labels, searched and explained; then a model is trained on others, and the
gain is shown. It uses emoji, or a folder of yours.
"""

from secondsight.demo.drawings import VENDORS, pictures, table
from secondsight.demo.side_by_side import ModelAnswers, side_by_side
from secondsight.demo.subject import Subject, emoji, evaluate_collection, folder

__all__ = [
    "VENDORS",
    "ModelAnswers",
    "Subject",
    "emoji",
    "evaluate_collection",
    "folder",
    "pictures",
    "side_by_side",
    "table",
]
