from .recipe import Recipe as Recipe
from .recipe_file import read as read
from .run import Result as Result
from .run import train as train
