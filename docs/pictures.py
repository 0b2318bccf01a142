#!/usr/bin/env python3
"""Makes the pictures of README.md with the programs of build/bin:  python3 docs/pictures.py

report.svg is the timeline and the memory of a pipeline's report, run.svg a compilation and a run in a terminal.
"""

import html
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "build/bin"
REPORTED = """nnaot gpt2.onnx -g 4 --batch 16 --loss 'next_token(logits,input_ids)' --optimizer adamw --plan pp=2,tp=2 \
--micro-batches 4 --cluster h100:1x4 --target cuda --emit nn -o rank.nn --report report.html"""
SHOWN = [
    "nnaot mlp.onnx -g 2 --batch 32 --loss 'cross_entropy(logits)' --optimizer adamw -o train_rank",
    "./train_rank --input x=x.npy --input labels=labels.npy --steps 6",
]
COLUMNS, LINE, MARGIN = 104, 18, 14


def shell(command, folder):
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", command + " 2>&1"], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def terminal(folder):
    lines = []
    for command in SHOWN:
        lines += ["$ " + command] + shell(command, folder)
    lines = [line[:COLUMNS] for line in lines]
    height = 2 * MARGIN + LINE * len(lines)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" font-family="monospace" font-size="13.5">',
           f'<rect width="860" height="{height}" rx="8" fill="#16181c"/>']
    for i, line in enumerate(lines):
        color = "#86b3ea" if line.startswith("$ ") else "#e4e6ea"
        text = html.escape(line).replace(" ", "&#160;")
        out.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * i + 13}" fill="{color}">{text}</text>')
    return "\n".join(out + ["</svg>\n"])


def report(folder):
    shell(REPORTED, folder)
    page = (folder / "report.html").read_text()
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    style = re.sub(r"@media \(prefers-color-scheme.*?\n}\n", "", style, flags=re.S)
    colors = dict(re.findall(r"--(\w+): (#\w+);", style))
    style = re.sub(r"var\(--(\w+)\)", lambda m: colors[m[1]], style)
    page = re.sub(r"var\(--(\w+)\)", lambda m: colors[m[1]], page)
    drawings = re.findall(r"<svg viewBox=\"0 0 (\d+) (\d+)\".*?>(.*?)</svg>", page, re.S)[:2]
    height = sum(int(h) + 34 for _, h, _ in drawings) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1130 {height}" font-family="sans-serif" font-size="12">',
           f"<style>{html.escape(style, quote=False)}</style>",
           f'<rect width="1130" height="{height}" rx="8" fill="#ffffff" stroke="#e3e3df"/>']
    y = 10
    for (width, h, body), title in zip(drawings, ("Timeline: one row per rank", "Memory of rank 0 over time")):
        out.append(f'<text x="10" y="{y + 14}" fill="#1d1f23" font-size="14">{title}</text>')
        out.append(f'<svg x="10" y="{y + 22}" width="{width}" height="{h}" viewBox="0 0 {width} {h}">{body}</svg>')
        y += int(h) + 34
    return "\n".join(out + ["</svg>\n"])


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for sample in ("mlp", "gpt2"):
            for file in (ROOT / "samples" / sample).iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
        (ROOT / "docs/run.svg").write_text(terminal(folder))
        (ROOT / "docs/report.svg").write_text(report(folder))


if __name__ == "__main__":
    main()
