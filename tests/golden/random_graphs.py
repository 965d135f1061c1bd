"""Random small pipelines, for property tests."""

from hypothesis import strategies as st

from beam_spark_runner.graph.model import Graph
from tests.golden.notation import parse

_PLAIN, _KV, _GROUPED = "bytes", "kv<bytes,bytes>", "kv<bytes,iterable<bytes>>"


@st.composite
def graphs(draw: st.DrawFn, *, max_steps: int = 14, environments: int = 1) -> Graph:
    """Draw a graph with Flattens (of nothing, too), groupings, side inputs, SDFs and combines."""
    lines = ["S0: impulse() -> c0"]
    coders = {"c0": _PLAIN}
    readable_pairs: list[str] = []
    for number in range(1, draw(st.integers(1, max_steps)) + 1):
        out = f"c{number}"
        any_one = st.sampled_from(sorted(coders))
        choices = ["pardo", "pardo", "pardo", "reshuffle", "flatten", "flatten", "impulse", "sdf"]
        if readable_pairs:
            choices += ["group", "group", "combine"]
        kind = draw(st.sampled_from(choices))
        coder = _PLAIN
        if kind == "impulse":
            step = f"impulse() -> {out}"
        elif kind == "reshuffle":
            source = draw(any_one)
            coder = coders[source]
            step = f"reshuffle({source}) -> {out}"
        elif kind == "flatten":
            coder = draw(st.sampled_from(sorted(set(coders.values()))))
            alike = [c for c, its in coders.items() if its == coder]
            sources = draw(st.lists(st.sampled_from(alike), max_size=4))
            step = f"flatten({', '.join(sources)}) -> {out}"
        elif kind == "group":
            coder = _GROUPED
            step = f"group_by_key({draw(st.sampled_from(readable_pairs))}) -> {out}"
        elif kind == "combine":
            coder = _KV
            source = draw(st.sampled_from(readable_pairs))
            step = f"combine_per_key({source}) -> {out} @e0 accumulator=sums"
        else:
            coder = draw(st.sampled_from([_PLAIN, _KV]))
            sides = draw(st.lists(any_one, max_size=2)) if draw(st.booleans()) else []
            inputs = ", ".join([draw(any_one), *(f"{side} as iterable" for side in sides)])
            outs = [out]
            if draw(st.integers(0, 3)) == 0:
                outs.append(f"{out}x")
                coders[f"{out}x"] = _PLAIN
            environment = draw(st.integers(0, environments - 1))
            step = f"pardo({inputs}) -> {', '.join(outs)} @e{environment}"
            if kind == "sdf":
                step += " restriction=range"
            if draw(st.integers(0, 5)) == 0:
                step += " stable"
        lines.append(f"S{number}: {step}")
        coders[out] = coder
        if coder == _KV:
            readable_pairs.append(out)
    lines += [f"{collection} :: {coder}" for collection, coder in coders.items()]
    return parse("\n".join(lines))
