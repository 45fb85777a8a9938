from .collection import Index as Index
from .creation import create as create
from .creation import open as open
from .growth import Growth as Growth
from .hits import Hits as Hits
from .hits import Item as Item
