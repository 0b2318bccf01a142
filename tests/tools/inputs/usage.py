"""usage.py NNAOT NNAOT_OPT NNAOT_EVAL: what is said of mistakes, and the exit status."""

import pathlib
import re
import subprocess
import sys

nnaot, opt, evaluate = sys.argv[1:]
wrong = []


def expect(program, arguments, said, status=2):
    done = subprocess.run([program, *arguments.split()], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if done.returncode != status or said not in done.stderr:
        wrong.append(f"{arguments}: {done.returncode}: {done.stderr}")


for program in nnaot, opt, evaluate:
    name = program.rsplit("/", 1)[-1]
    expect(program, "--no-such in.nn", f"{name}: error: there is no option --no-such")
    expect(program, "in.nn -!", f"{name}: error: there is no option -!")
    expect(program, "in.nn --batch", f"{name}: error: --batch wants a value")
    expect(program, "in.nn --batch x", f"{name}: error: --batch wants an integer, not 'x'")
    expect(program, "in.nn --help=3", f"{name}: error: --help takes no value")

# Flags of the executable, unless nnaot has one of that name too, are known to be that.
help_text = subprocess.run([nnaot, "--help"], stdout=subprocess.PIPE, text=True).stdout
if re.search(r"\(default( default)?\)", help_text):
    wrong.append("--help shows a default that is no value")
flags = (pathlib.Path(__file__).parents[3] / "rt" / "flags.def").read_text()
for flag in re.findall(r'^FLAG\(\w+, *\w+, *"([\w-]+)"', flags, re.M):
    if not re.search(rf"--{flag}\b(?!-)", help_text):
        expect(nnaot, f"none.onnx -o x --{flag} f",
               f"there is no option --{flag}\nhint: it is an option of the executable that nnaot makes")
expect(nnaot, "none.onnx -o x --tune=f", "there is no option --tune\nhint: it is an option of the executable")
expect(nnaot, "none.onnx -o x --tunes", "hint: 'nnaot --help' lists the options")
expect(nnaot, "none.onnx -o x --target cuda --link default", "--link is static or shared, not 'default'")
expect(nnaot, "none.onnx -o x --target cuda --aot-plans default", "--aot-plans is yes or no, not 'default'")
expect(nnaot, "none.onnx --print -o x", "--print may be several options")
for option in "loss y", "optimizer adam", "freeze w", "init random", "clip-norm 1", "accumulate 2", "micro-batches 2":
    expect(nnaot, f"none.onnx -o x --passes=train --{option}", f"--{option.split()[0]} has no effect with --passes")
for option in "batch 4", "dim n=4", "batch-dim n":
    expect(nnaot, f"none.nn -o x --{option}", f"--{option.split()[0]} has no effect with a module in text form")
expect(nnaot, "none.onnx -o x --split-ranks --emit nn", "--split-ranks has no effect with --emit nn")
expect(nnaot, "none.onnx -o x --passes=optimizer(name=sgd:lr=0.1)", "give --lr")
for lr in "nan", "-1", "inf", "abc", "":
    expect(nnaot, f"none.onnx -o x --lr={lr}", "--lr")
for option in "warmup=-5", "warmup=nan", "warmup=1.5", "warmup", "min=-1", "min=0.5", "warm=3":
    expect(nnaot, f"none.onnx -o x --lr 0.1 --lr-schedule linear:{option}", "--lr-schedule")
for dim in "foo", "foo=", "=3", "foo=x", "foo=0", "foo=-1":
    expect(nnaot, f"none.onnx -o x --dim {dim}", "--dim wants NAME=SIZE")
# These are right, and then there is no model.
expect(nnaot, "none.onnx -o x --lr 0.1 --lr-schedule linear:warmup=5,min=0.1 --dim n=3", "none.onnx", 1)
print("\n".join(wrong))
sys.exit(bool(wrong))
