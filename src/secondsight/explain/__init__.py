"""Why two images match, exactly; and parts of images to search with.

    from secondsight import explain

    why = explain.pair(model, "a.jpg", "b.jpg")    # similarity, links, maps a and b, effect_a, effect_b, codewords
    why.save("why.html")                           # or why.png; why.to_dict() for JSON

    places = explain.places(model, "a.jpg")        # what each place adds to the embedding: computed once, cheap to keep
    places.vector                                  # (D,) the embedding
    places.region((0.2, 0.1, 0.6, 0.7))            # (D,) a query for a part; a mask (H, W) works, too
    explain.pair(model, places, "b.jpg")           # pairs take places
    places.parts(8)                                # its parts: vector, mask, box, strength; suggestions of regions
    places.vectors(8)                              # (8, D) the whole and 7 parts, for an index that finds small things

    explain.pair(model, a, b, others=vectors)      # and distinct_a, distinct_b: what other pictures would not get
    explain.agreement(why).score                   # how much of the similarity one movement explains
    explain.rerank_score(places, other_places)     # similarity and agreement: to re-rank the first results by
    explain.refined(query, liked, disliked)        # (D,) a query after examples, by Rocchio's rule
    explain.weighed(places, codewords=w)           # (D,) a query in which codewords or places count more, or against
    explain.codewords(model, images).save("codewords.html")

An embedding that is a sum over places makes the cosine a sum over pairs of places (``algebra``): these links are all
there is to it, negative ones included. What removing a place would do is another question with another answer
(``effect_a``, and exactly ``left_out_a``). Poolings that are no sum are approximated by integrated gradients.

``__init__.pyi`` lists the public names; each is loaded when first asked for, because most need torch, and a
server that runs an exported model has none.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
