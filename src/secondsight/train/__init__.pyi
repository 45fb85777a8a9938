from .reading import read as read
from .recipe import Recipe as Recipe
from .running import Result as Result
from .running import train as train
