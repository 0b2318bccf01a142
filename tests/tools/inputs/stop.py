"""stop.py FOLDER NNAOT MODEL: nnaot leaves no files if it is told to stop while it compiles."""

import os
import pathlib
import signal
import subprocess
import sys
import time

folder, nnaot, model = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
tmp = folder / "stopped"
tmp.mkdir()
# Slow enough to be caught.
cc = folder / "slow-cc"
cc.write_text("#!/bin/sh\necho > program\nexec sleep 60\n")
cc.chmod(0o755)
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE:
    signal.signal(number, signal.SIG_DFL)  # lit ignores some signals, and an ignored signal stays ignored
    p = subprocess.Popen([nnaot, model, "--batch", "16", "--loss", "cross_entropy(logits)", "-o", folder / "exe"],
                         env={**os.environ, "TMPDIR": str(tmp), "CC": str(cc)})
    for _ in range(3000):
        if list(tmp.glob("*/program")):
            break
        time.sleep(0.01)
    assert list(tmp.glob("*/program")), "it did not begin"
    p.send_signal(number)
    assert p.wait(timeout=30) == -number
    assert not list(tmp.iterdir()) and not list(folder.glob("exe*")), number
