from .collection import Index as Index
from .collection import create as create
from .collection import open as open
from .growth import Growth as Growth
from .hits import Hits as Hits
from .hits import Item as Item
