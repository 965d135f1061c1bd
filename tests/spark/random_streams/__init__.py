"""Random pipelines that stream: drawn (``recipes``), built (``steps``), run (``running``).

``model`` computes what each must give; ``disagreements`` lists where Beam's runners give something
else, and docs/conformance.md who is right.
"""
