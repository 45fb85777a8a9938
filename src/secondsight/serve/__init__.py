"""A collection on a page and over HTTP: drop a photo, see the matches, click one, see why.

    secondsight serve photos.index            # http://127.0.0.1:8000

What happens to a request:

    guard       who may ask, how much and for how long; headers of every answer
    routes      the addresses, with their description (OpenAPI)
    requests    what can be asked
    service     from a question to hits, by way of
    decoders    processes that turn uploads into pixels, and may die
    network     one thread that runs the model on whatever waits, as one batch
    kept        features of recent pictures: boxes, parts and explanations need no second pass
"""
