#!/usr/bin/env python3
"""Draws what compare.py measured: tokens a second over context length, prefill left and decode right.

usage: plot.py [RESULTS.jsonl...] [--model NAME] [--threads N] [--busy N] [--out docs/speed.svg]

Without files: all of bench/results. Of each point the newest measurement counts, as the median of its rounds.
Model, threads and busy CPUs are those of the newest measurement unless options say otherwise. Transparent and
in middle tones, for light and dark pages.
"""

import argparse
import collections
import math
import pathlib
import statistics

import peers
import results

WIDTH, HEIGHT = 960, 400
TOP, BOTTOM = 64, 346  # of both panels
PANELS = {"prefill": (50, 320), "decode": (530, 800)}  # left and right edge; labels stand to the right
LINE_HEIGHT = 15
GREY = "#7d8590"
COLOURS = {
    "tierkv": "#d9534f",
    "ik": "#3f83e0",
    "llamacpp": "#2f9e5b",
    "llamacpp-node": "#8a7a3d",
    "openvino": "#9b6bdf",
}
NAMES = {
    "ik": "ik_llama.cpp",
    "llamacpp": "llama.cpp",
    "llamacpp-node": "llama.cpp (node)",
    "openvino": "OpenVINO",
}
DASHES = ("", "7 4", "2 3", "9 3 2 3")  # an engine's KV types, in the order in which they come


class LogAxis:
    """Maps values to pixels, logarithmically."""

    def __init__(self, low, high, start, end):
        self.low, self.high = math.log(low), math.log(high)
        self.start, self.end = start, end

    def at(self, value):
        share = (math.log(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def newest_series(runs):
    """{what: {(engine, kv): [(tokens, median rate), ...]}}"""
    points = collections.defaultdict(list)
    for run in runs:
        points[run["what"], run["engine"], run["kv"], run["tokens"]].append(run)
    series = {what: collections.defaultdict(list) for what in PANELS}
    for (what, engine, kv, tokens), found in sorted(points.items()):
        newest = max(run["time"] for run in found)
        rates = [run[peers.RATES[what]] for run in found if run["time"] == newest]
        series[what][engine, kv].append((tokens, statistics.median(rates)))
    return series


def choose(runs, args):
    """The runs of one model, number of threads, busy CPUs and processor, and these as a dict."""
    runs = [run for run in runs if run.get("what") in PANELS]
    for key in ("model", "threads", "busy"):
        wanted = getattr(args, key)
        runs = [run for run in runs if wanted is None or run[key] == wanted]
    if not runs:
        raise SystemExit("no such measurements: run compare.py first")
    newest = max(runs, key=lambda run: run["time"])
    chosen = {key: newest[key] for key in ("model", "threads", "busy", "cpu")}
    return [run for run in runs if chosen.items() <= run.items()], chosen


def text(x, y, words, colour=GREY, anchor="start", size=12, weight="normal"):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    style = f'fill="{colour}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'


def line(x1, y1, x2, y2, colour=GREY, width=1.0, opacity=1.0):
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'


def short(number):
    """512, 4K, 1M: contexts in powers of two, as they are called; others as they are."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if number >= size and number % size == 0:
            return f"{number // size}{unit}"
    return f"{number:,}"


def rate_ticks(low, high):
    """1, 2 and 5 times powers of ten, within the range."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10**p for p in powers for m in (1, 2, 5) if low <= m * 10**p <= high]


def draw_axes(x, y, left, right, tokens, rates):
    """Grid lines at round rates, ticks at the measured contexts."""
    for rate in rates:
        yield line(left, y.at(rate), right, y.at(rate), opacity=0.25)
        yield text(left - 6, y.at(rate) + 4, f"{rate:,g}", anchor="end")
    yield line(left, BOTTOM, right, BOTTOM)
    for count in tokens:
        yield line(x.at(count), BOTTOM, x.at(count), BOTTOM + 4)
        yield text(x.at(count), BOTTOM + 18, short(count), anchor="middle")


def spread(wanted):
    """Heights for labels, as near as possible to the wanted ones (ascending), none on another."""
    placed = []
    for y in wanted:
        placed.append(max(y, placed[-1] + LINE_HEIGHT) if placed else y)
    overhang = max(0.0, placed[-1] - BOTTOM) if placed else 0.0
    for i in range(len(placed) - 1, -1, -1):  # push back up what ran out at the bottom
        limit = placed[i + 1] - LINE_HEIGHT if i + 1 < len(placed) else placed[i] - overhang
        placed[i] = min(placed[i], limit)
    return placed


def label_of(engine, kv, last_rate):
    return f"{NAMES.get(engine, engine)} {kv}: {last_rate:,.0f}"


def draw_curve(x, y, points, colour, dash, width):
    path = " ".join(f"{x.at(tokens):.1f},{y.at(rate):.1f}" for tokens, rate in points)
    stroke = f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"'
    yield f'<polyline points="{path}" fill="none" {stroke} stroke-linejoin="round"/>'
    for tokens, rate in points:
        yield f'<circle cx="{x.at(tokens):.1f}" cy="{y.at(rate):.1f}" r="{width + 0.7}" fill="{colour}"/>'


def dash_of(engine, kv, series):
    return DASHES[sorted(k for e, k in series if e == engine).index(kv) % len(DASHES)]


def draw_curves(x, y, right, series):
    """The curves and, beside where each ends, its name and last rate."""
    by_end = sorted(series.items(), key=lambda item: y.at(item[1][-1][1]))
    heights = spread([y.at(points[-1][1]) for _, points in by_end])
    for ((engine, kv), points), height in zip(by_end, heights):
        colour, ours = COLOURS.get(engine, GREY), engine == "tierkv"
        yield from draw_curve(x, y, points, colour, dash_of(engine, kv, series), 2.6 if ours else 1.6)
        end_x, end_y = x.at(points[-1][0]), y.at(points[-1][1])
        yield line(end_x + 6, end_y, right + 18, height, colour, width=0.7, opacity=0.6)
        weight = "bold" if ours else "normal"
        yield text(right + 21, height + 4, label_of(engine, kv, points[-1][1]), colour, weight=weight)


def draw_panel(what, series):
    left, right = PANELS[what]
    yield text(left, TOP - 14, f"{what}, tokens/s", size=13, weight="bold")
    if not series:
        yield text(left, TOP + 20, "not measured")
        return
    tokens = sorted({t for points in series.values() for t, _ in points})
    rates = [rate for points in series.values() for _, rate in points]
    low, high = min(rates) / 1.15, max(rates) * 1.15
    x = LogAxis(tokens[0], max(tokens[-1], tokens[0] * 2), left, right)
    y = LogAxis(low, high, BOTTOM, TOP)
    yield from draw_axes(x, y, left, right, tokens, rate_ticks(low, high))
    yield from draw_curves(x, y, right, series)
    yield text((left + right) / 2, BOTTOM + 38, "tokens of context", anchor="middle")


def draw(series, chosen):
    busy = f", busy neighbour processes: {chosen['busy']}" if chosen["busy"] else ""
    threads = f"{chosen['threads']} thread{'s' if chosen['threads'] > 1 else ''}"
    title = f"{chosen['model'].removesuffix('.gguf')}, {threads}, {chosen['cpu']}{busy}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    yield f"<title>{title}</title>"
    yield text(PANELS["prefill"][0], 22, title, size=14)
    for what in PANELS:
        yield from draw_panel(what, series[what])
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--model", help="file name of the model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--busy", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=results.ROOT / "docs/speed.svg")
    args = parser.parse_args()
    files = args.files or sorted(results.FOLDER.glob("*.jsonl"))
    runs, chosen = choose(results.read(files), args)
    args.out.write_text("\n".join(draw(newest_series(runs), chosen)) + "\n", encoding="utf-8")
    print(f"{args.out}: {len(runs)} runs of {chosen}")


if __name__ == "__main__":
    main()
