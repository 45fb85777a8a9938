"""Tables of results: a file says what to run, ``results/NAME.jsonl`` keeps what came out, a page is made of both."""
