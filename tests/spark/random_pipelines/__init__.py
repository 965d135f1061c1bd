"""Random pipelines: drawn (``recipes``), built (``steps``, ``coded``, ``lent``), run (``running``).

``failing`` has those of which both runners must say why and where they fail.
"""
