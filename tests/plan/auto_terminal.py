"""--plan auto on a terminal: the progress line, and Ctrl-C, which takes the best plan so far. Without one nnaot ends with exit
status 130. nnaot-plan fit at Ctrl-C.

On a pseudo-terminal, the interrupt is sent as soon as the progress line has a plan that fits. Many candidates are left then, so the
choice ends early, and the plan is compiled as always. Of several clusters, those before the interrupt are printed; the one at hand
is left out, also if none of its plans fits.
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.path.join(os.environ.get("BUILD", "build"), "bin")
NNAOT = os.path.join(BIN, "nnaot")
MODEL = [str(ROOT / "samples/gpt2/gpt2.onnx"), "-g", "8", "--batch", "96", "--loss", "next_token(logits,input_ids)"]
FITS = re.compile(rb"\d+ plans? tried in \d+ s: [a-z0-9_=,]+ [\d.]+ ms")


def watch(command, interrupt, columns=0):
    """Returns the exit status, the text on the terminal, and that on stdout. Ctrl-C comes at a text that `interrupt` finds. The
    terminal has so many columns; 0: it does not say."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stderr=end, stdout=subprocess.PIPE, text=True)
    os.close(end)
    text, sent = b"", False
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        text += more
        if interrupt and not sent and interrupt.search(text):
            process.send_signal(signal.SIGINT)
            sent = True
    os.close(terminal)
    out = process.stdout.read()
    return process.wait(), text, out


def run(folder, interrupt):
    """Returns the exit status, the text on the terminal, and the summary."""
    out = pathlib.Path(folder, "plan.json")
    status, text, _ = watch([NNAOT, *MODEL, "--emit", "plan", "-o", str(out)], FITS if interrupt else None)
    return status, text, json.loads(out.read_text())


def run_on_few_columns(folder):
    """The progress line stays within a row of the terminal; the text of a plan is cut for that."""
    command = [NNAOT, *MODEL, "--plan", "auto", "--emit", "plan", "-o", str(pathlib.Path(folder, "narrow.json"))]
    status, text, _ = watch(command, None, 56)
    lines = [line for line in text.decode().split("\r\x1b[K") if " tried in " in line and "\n" not in line]
    assert status == 0 and lines and max(map(len, lines)) < 56, (status, lines)
    assert any("…" in line for line in lines), lines


def run_without_plan(folder):
    """Interrupts a choice in which nothing fits so far. If nothing can fit, the error starts at a line of its own."""
    cluster, out = pathlib.Path(folder, "small.lua"), pathlib.Path(folder, "none.json")
    cluster.write_text('return {like = "h100:1x8", memory = 3e5, reserve = 0}')
    command = [NNAOT, *MODEL, "--cluster", str(cluster), "--emit", "plan", "-o", str(out)]
    status, text, _ = watch(command, re.compile(rb"\d+ plans? tried in"))
    assert status == 130, (status, text)
    assert b"interrupted: no plan that fits was found yet" in text, text
    n = re.search(rb"error: no plan was chosen: of the (\d+) considered so far, none fits", text)
    assert n and int(n[1]) > 0 and not out.exists(), text
    cluster.write_text('return {like = "h100:1x8", memory = 5e4, reserve = 0}')
    status, text, _ = watch(command, None)
    assert status == 1 and b"\r\x1b[Kerror: no plan of 8 ranks fits: the weights" in text and not out.exists(), text


def fit(folder):
    """Interrupts the second of three clusters, on which something fits, or nothing."""
    tiny = pathlib.Path(folder, "tiny.lua")
    tiny.write_text('return {like = "h100:1x8", memory = 1e6, reserve = 0}')
    for second in ("h100:1x8", str(tiny)):
        command = [os.path.join(BIN, "nnaot-plan"), "fit", MODEL[0], *MODEL[3:], "--cluster", f"cpu:1x2,{second},cpu:1x4"]
        status, text, out = watch(command, re.compile(rb"cluster 2 of 3"))
        assert status == 130, (status, text, out)
        assert b"interrupted: the clusters so far are printed" in text, text
        assert "cpu:1x2" in out and "h100" not in out and "tiny" not in out and "cpu:1x4" not in out, out
        assert "smallest that fits: cpu:1x2" in out, out


def main():
    with tempfile.TemporaryDirectory() as folder:
        status, text, whole = run(folder, False)
        assert status == 0 and FITS.search(text) and b", none below " in text, text
        assert not whole["certificate"]["stopped"] and b"ended early" not in text
        status, text, some = run(folder, True)
        run_on_few_columns(folder)
        run_without_plan(folder)
        fit(folder)
        status_first, text_first, out = watch([os.path.join(BIN, "nnaot-plan"), "fit", MODEL[0], *MODEL[3:], "--cluster",
                                               "cpu:1x2,cpu:1x4"], re.compile(rb"cluster 1 of 2"))
    assert status_first == 130 and b"interrupted: no cluster was done yet" in text_first and not out, (text_first, out)
    assert status == 0, status
    assert b"interrupted: the best plan so far is taken" in text and b"(the search ended early)" in text, text
    assert some["certificate"]["stopped"] and len(some["candidates"]) < len(whole["candidates"])
    fits = [c["step_ms"] for c in some["candidates"] if c["fits"]]
    assert some["predicted_step_ms"] >= min(fits) >= whole["certificate"]["best_ms"]
    print(f"{len(whole['candidates'])} candidates; interrupted {len(some['candidates'])}")


if __name__ == "__main__":
    sys.exit(main())
