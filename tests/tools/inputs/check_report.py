"""check_report.py PAGE.html SUMMARY.json [TEXT ...]: a page without external references, and with the summary's numbers."""

import html.parser
import json
import pathlib
import re
import sys

page = pathlib.Path(sys.argv[1]).read_text()
summary = json.loads(pathlib.Path(sys.argv[2]).read_text())
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Every element is closed in order; `text` is the visible text, `ids` the targets of links."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.ids, self.links, self.rects = [], [], set(), set(), 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag != "script" and not {"src", "onclick", "onload"} & set(attrs), (tag, attrs)
        assert attrs.get("href", "#").startswith("#"), attrs
        if "id" in attrs: self.ids.add(attrs["id"])
        if "href" in attrs: self.links.add(attrs["href"][1:])
        self.rects += tag == "rect"
        if tag not in VOID: self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.rects += tag == "rect"

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open, self.getpos())
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] != "style": self.text.append(data)


p = Page()
p.feed(page)
p.close()
text = "".join(p.text)
assert not p.open, p.open
assert p.links <= p.ids and p.ids == {"time", "memory", "traffic", "alternatives", "graph", "passes"}, (p.links, p.ids)
assert "http" not in page and "url(" not in page and "@import" not in page
assert "nan" not in re.sub(r"<[^>]*>", "", page).lower().split() and 'NaN' not in page and '"inf' not in page
assert p.rects > 0
step = summary["predicted_step_ms"]
said = re.search(r"([\d.]+) (µs|ms|s)a step takes", text)
assert said, text[:400]
took = float(said[1]) * {"µs": 1e-3, "ms": 1, "s": 1e3}[said[2]]
assert abs(took / step - 1) < 0.01, (took, step)
assert f"{100 * summary['bubble_fraction']:.1f} %of all ranks’ time they are idle" in text

# Bytes handed to collectives equal the summary's; bytes sent equal the sum of the transfers from rank to rank.
UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
handed, sent = {}, 0
for kind, a, a_unit, b, b_unit in re.findall(
        r'<tr><td class="mono">(\w+)</td><td>[^<]*</td><td class="n">\d+</td><td class="n">([\d.]+) (\w+)</td>'
        r'<td class="n">([\d.]+) (\w+)</td></tr>', page):
    handed[kind] = handed.get(kind, 0) + float(a) * UNITS[a_unit]
    sent += float(b) * UNITS[b_unit]
for kind, n in summary["comm_bytes"].items():
    assert abs(handed.get(kind, 0) - n) <= 0.05 * n, (kind, handed, n)
drawn = sum(float(n) * UNITS[u] for n, u in re.findall(r"<title>[\d-]+ to [\d-]+: ([\d.]+) (\w+)</title>", page))
assert abs(drawn - sent) <= 0.05 * sent, (drawn, sent)
for word in sys.argv[3:]:
    assert word in text, word
