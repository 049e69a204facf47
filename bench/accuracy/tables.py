"""Tables and the plot of docs/accuracy.md, from measurements as the scripts here write them."""

import collections
import math
import statistics

from evaluation import wilson  # first: it makes bench/compare importable
import plot  # bench/compare/plot.py: drawing, and an axis

HARM_NATS = 0.5
QUALITIES = {"high": 5e-4, "balanced": 2e-3, "compact": 1e-2}
NAMES = {"smollm2-135m-instruct-q4_1": "SmolLM2 135M", "gemma-3-270m-q4_k_m": "Gemma 3 270M"}
WIDTH, HEIGHT, LEFT, RIGHT = 720, 400, 70, 560
COLOURS = {"smollm2-135m-instruct-q4_1": "#d9534f", "gemma-3-270m-q4_k_m": "#3f83e0"}
MIB = 1 << 20


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(*titles):
    return [row(*titles), "|" + "---|" * len(titles)]


def nats(value):
    """Three significant digits, as docs/decisions.md writes them: .00077."""
    digits = 3 if value == 0 else max(2, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def percent(share):
    return f"{100 * share:.1f} %"


def name_of(model):
    return NAMES.get(model, model)


def grouped(runs, *keys):
    """{values of keys: runs}, in order of appearance."""
    groups = collections.defaultdict(list)
    for run in runs:
        groups[tuple(run[key] for key in keys)].append(run)
    return groups


def mean(runs, key):
    return statistics.mean(run[key] for run in runs)


def order_of(layout):
    """Codecs, then planned bits from many to few, then low rank, then qualities."""
    if layout in QUALITIES:
        return 3, QUALITIES[layout]
    if layout.startswith("lr"):
        return 2, -float(layout[2:])
    if layout.startswith("k"):
        return 0, -int(layout[1] + layout[3])
    return 1, -float(layout)


def rank(model, layout, profile):
    """Where a row stands: models in the order of NAMES, without a profile before with one."""
    return [*NAMES, model].index(model), order_of(layout), profile != "none"


def kld_table(by_bench):
    """Means over the texts that a layout was measured on, which are named."""
    runs = [run for run in by_bench["kld"] if run["prefix"] == 3072]
    if not runs:
        return
    titles = (
        "model",
        "layout",
        "profile",
        "bits",
        "KLD",
        "99th percentile",
        "same top token",
        "delta PPL",
        "predicted",
        "texts",
    )
    yield from table(*titles)
    groups = grouped(runs, "model", "layout", "profile")
    for (model, layout, profile), found in sorted(groups.items(), key=lambda group: rank(*group[0])):
        yield row(
            name_of(model),
            layout,
            "no" if profile == "none" else "yes",
            f"{mean(found, 'bits_per_element'):.2f}",
            nats(mean(found, "kld")),
            nats(mean(found, "kld_p99")),
            percent(mean(found, "top1")),
            f"{mean(found, 'delta_ppl'):+.3f}",
            nats(mean(found, "predicted_kld")),
            ", ".join(run["text"] for run in found),
        )


def prefix_table(by_bench):
    """Layouts that were measured after several prefixes of one text."""
    groups = grouped(by_bench["kld"], "model", "layout", "text", "profile")
    several = {key: found for key, found in groups.items() if len({run["prefix"] for run in found}) > 1}
    if not several:
        return
    yield from table("model", "text", "layout", "tokens before", "compressed", "KLD", "same top token")
    for (model, layout, text, profile), found in several.items():
        shown = layout if profile == "none" else f"{layout}, profile"
        for run in sorted(found, key=lambda run: run["prefix"]):
            sizes = f"{run['prefix']:,}", f"{run['n_compressed']:,}"
            yield row(name_of(model), text, shown, *sizes, nats(run["kld"]), percent(run["top1"]))


def peer_table(by_bench):
    """llama.cpp's caches, and ours on the same texts with the same int8 activations where measured."""
    if not by_bench["peer"]:
        return
    yield from table(
        "model", "text", "cache", "bits", "KLD", "99th percentile", "same top token", "delta PPL"
    )
    for run in by_bench["peer"]:
        figures = nats(run["kld"]), nats(run["kld_p99"]), percent(run["top1"]), f"{run['delta_ppl']:+.3f}"
        shown = f"llama.cpp {run['layout']}"
        yield row(name_of(run["model"]), run["text"], shown, f"{run['bits_per_element']:.2f}", *figures)
    for run in by_bench["kld-int8"]:
        figures = nats(run["kld"]), nats(run["kld_p99"]), percent(run["top1"]), f"{run['delta_ppl']:+.3f}"
        shown = f"tierkv {run['layout']}"
        yield row(name_of(run["model"]), run["text"], shown, f"{run['bits_per_element']:.2f}", *figures)


def recall_table(by_bench):
    runs = [run for run in by_bench["recall"] if run["layout"] != "exact"]
    if not runs:
        return
    yield from table(
        "text",
        "document",
        "layout",
        "questions",
        "KV in RAM",
        "exact answers",
        "kept",
        "of facts",
        "of the later half",
        "gained",
        "answers' nats a token",
    )
    for run in runs:
        yield row(
            run["text"],
            f"{run['document_tokens']:,} tokens",
            run["layout"],
            "before and after" if run["before"] else "after",
            f"1/{run['resident_ratio']:.2f}",
            f"{run['known']} of {run['asked']}",
            f"**{run['kept']} of {run['known']}**",
            f"{run['kept_facts']} of {run['known_facts']}",
            f"{run['kept_late']} of {run['known_late']}",
            run["gained"],
            f"{run['mean_loss']:+.3f} (worst {run['worst_loss']:+.2f})",
        )


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def harm_table(by_bench):
    if not by_bench["harm"]:
        return
    yield from table(
        "model",
        "layout",
        "requests",
        "harmed",
        "95 % interval",
        "nats lost a token: median, 95th percentile, most",
        "KLD: median, 95th percentile, most",
        "bits",
    )
    for (model, layout), runs in grouped(by_bench["harm"], "model", "layout").items():
        lost, klds = [run["lost_nats"] for run in runs], [run["kld"] for run in runs]
        harmed = sum(value > HARM_NATS for value in lost)
        low, high = wilson(harmed, len(runs))
        yield row(
            name_of(model),
            layout,
            len(runs),
            harmed,
            f"{100 * low:.1f} to {100 * high:.1f} %",
            ", ".join(f"{quantile(lost, share):+.3f}" for share in (0.5, 0.95, 1)),
            ", ".join(nats(quantile(klds, share)) for share in (0.5, 0.95, 1)),
            f"{mean(runs, 'bits_per_element'):.2f}",
        )


def harm_kinds_table(by_bench):
    """Whether one kind of request, or one order, is hit more than the others."""
    if not by_bench["harm"]:
        return
    yield from table("requests", "number", "nats lost a token: mean, most", "KLD: mean, most")
    for key in ("kind", "order", "text"):
        for (value,), runs in sorted(grouped(by_bench["harm"], key).items()):
            lost, klds = [run["lost_nats"] for run in runs], [run["kld"] for run in runs]
            losses = f"{statistics.mean(lost):+.3f}, {max(lost):+.3f}"
            yield row(
                f"{key}: {value}", len(runs), losses, f"{nats(statistics.mean(klds))}, {nats(max(klds))}"
            )


def underprediction_table(by_bench):
    if not by_bench["underprediction"]:
        return
    yield from table(
        "expected",
        "read",
        "KLD",
        "new plans",
        "at the end: exact, compressed, on flash",
        "peak RAM of the same answer under its ceiling",
    )
    for run in by_bench["underprediction"]:
        tiers = f"{run['n_exact']:,}, {run['n_compressed']:,}, {run['n_offloaded']:,}"
        ram = f"{run['run_peak_rss_bytes'] / MIB:.1f} of {run['ram_budget_bytes'] / MIB:.1f} MiB"
        yield row(run["expect"], run["tokens"], nats(run["kld"]), run["n_replans"], tiers, ram)


TABLES = {
    "kld": kld_table,
    "prefixes": prefix_table,
    "peer": peer_table,
    "recall": recall_table,
    "harm": harm_table,
    "harm kinds": harm_kinds_table,
    "underprediction": underprediction_table,
}


def draw_series(x, y, model, profile, points):
    """One model's planned bits, as a line; dashed with a profile."""
    colour, dash = COLOURS.get(model, plot.GREY), "" if profile == "none" else "7 4"
    yield from plot.draw_curve(x, y, points, colour, dash, 1.8)


def draw_grid(x, y, bits, klds):
    for tick in plot.rate_ticks(min(klds) / 1.3, max(klds) * 1.3):
        yield plot.line(LEFT, y.at(tick), RIGHT, y.at(tick), opacity=0.25)
        yield plot.text(LEFT - 6, y.at(tick) + 4, f"{tick:.5f}".rstrip("0"), anchor="end")
    yield plot.line(LEFT, plot.BOTTOM, RIGHT, plot.BOTTOM)
    for tick in range(math.ceil(min(bits)), math.floor(max(bits)) + 1):
        yield plot.line(x.at(tick), plot.BOTTOM, x.at(tick), plot.BOTTOM + 4)
        yield plot.text(x.at(tick), plot.BOTTOM + 18, str(tick), anchor="middle")
    yield plot.text(
        (LEFT + RIGHT) / 2, plot.BOTTOM + 38, "bits an element of compressed tokens", anchor="middle"
    )


def draw(runs):
    """KLD over bits: lines for planned bits, points with names for codecs and qualities; exact plans have neither."""
    runs = [run for run in runs if run["prefix"] == 3072 and run["kld"] > 0]
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    yield plot.text(LEFT, 22, "KL divergence from the exact cache, nats a token", size=14)
    if runs:
        points = {
            key: (mean(found, "bits_per_element"), mean(found, "kld"))
            for key, found in grouped(runs, "model", "profile", "layout").items()
        }
        bits, klds = zip(*points.values())
        x = plot.LogAxis(min(bits) / 1.03, max(bits) * 1.03, LEFT, RIGHT)
        y = plot.LogAxis(min(klds) / 1.3, max(klds) * 1.3, plot.BOTTOM, 40)
        yield from draw_grid(x, y, bits, klds)
        yield from draw_points(x, y, points)
    yield "</svg>"


def draw_points(x, y, points):
    planned, legend = collections.defaultdict(list), {}
    for (model, profile, layout), point in points.items():
        colour = COLOURS.get(model, plot.GREY)
        legend[model, profile] = colour
        if order_of(layout)[0] == 1:
            planned[model, profile].append(point)
            continue
        bold = "bold" if layout in QUALITIES else "normal"
        yield f'<circle cx="{x.at(point[0]):.1f}" cy="{y.at(point[1]):.1f}" r="3" fill="{colour}"/>'
        yield plot.text(x.at(point[0]) + 6, y.at(point[1]) - 4, layout, colour, size=11, weight=bold)
    for (model, profile), found in planned.items():
        yield from draw_series(x, y, model, profile, sorted(found))
    for i, ((model, profile), colour) in enumerate(legend.items()):
        name = name_of(model) + ("" if profile == "none" else ", profile")
        yield plot.text(RIGHT + 14, 56 + plot.LINE_HEIGHT * i, name, colour, weight="bold")
    if planned:
        yield plot.text(RIGHT + 14, 56 + plot.LINE_HEIGHT * len(legend), "lines: planned bits", size=11)
