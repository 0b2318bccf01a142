"""--plan auto on a terminal: the progress line, and Ctrl-C, which takes the best plan so far.

On a pseudo-terminal, the interrupt is sent as soon as the progress line has a plan that fits. Many candidates are left then, so the
choice ends early, and the plan is compiled as always.
"""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
MODEL = [str(ROOT / "samples/gpt2/gpt2.onnx"), "-g", "8", "--batch", "96", "--loss", "next_token(logits,input_ids)"]
FITS = re.compile(rb"\d+ plans? in \d+ s: [a-z0-9_=,]+ [\d.]+ ms")


def run(folder, interrupt):
    """Returns the exit status, the text on the terminal, and the summary."""
    out = pathlib.Path(folder, "plan.json")
    terminal, end = pty.openpty()
    process = subprocess.Popen([NNAOT, *MODEL, "--emit", "plan", "-o", str(out)], stderr=end, stdout=subprocess.DEVNULL)
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
        if interrupt and not sent and FITS.search(text):
            process.send_signal(signal.SIGINT)
            sent = True
    os.close(terminal)
    return process.wait(), text, json.loads(out.read_text())


def main():
    with tempfile.TemporaryDirectory() as folder:
        status, text, whole = run(folder, False)
        assert status == 0 and FITS.search(text) and b", none below " in text, text
        assert not whole["certificate"]["stopped"] and b"ended early" not in text
        status, text, some = run(folder, True)
    assert status == 0, status
    assert b"interrupted: the best plan so far is taken" in text and b"(the search ended early)" in text, text
    assert some["certificate"]["stopped"] and len(some["candidates"]) < len(whole["candidates"])
    fits = [c["step_ms"] for c in some["candidates"] if c["fits"]]
    assert some["predicted_step_ms"] >= min(fits) >= whole["certificate"]["best_ms"]
    print(f"{len(whole['candidates'])} candidates; interrupted {len(some['candidates'])}")


if __name__ == "__main__":
    sys.exit(main())
