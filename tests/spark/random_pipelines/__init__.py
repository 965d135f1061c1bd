"""Random pipelines: drawn (``recipes``), built (``kinds``), run (``running``).

``failing`` has those of which both runners must say why and where they fail.
"""
