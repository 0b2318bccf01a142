"""usage.py NNAOT NNAOT_OPT NNAOT_EVAL: messages and exit statuses of mistakes."""

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

for word in "--no\x1b[31m", "--batch=\x1b[31m", "-\x07":
    done = subprocess.run([nnaot, "in.nn", word], stderr=subprocess.PIPE, text=True)
    if done.returncode != 2 or word[-4:].replace("\x1b", "\\x1b").replace("\x07", "\\x07") not in done.stderr:
        wrong.append(f"control characters of the command line: {done.stderr!r}")

# Flags of the executable, unless nnaot has one of the same name, are recognised as such.
help_text = subprocess.run([nnaot, "--help"], stdout=subprocess.PIPE, text=True).stdout
if re.search(r"\(default( default)?\)", help_text):
    wrong.append("--help shows a default that is no value")
flags = (pathlib.Path(__file__).parents[3] / "rt" / "flags.def").read_text()
for flag in re.findall(r'^FLAG\(\w+, *\w+, *"([\w-]+)"', flags, re.M):
    if not re.search(rf"--{flag}\b(?!-)", help_text):
        expect(nnaot, f"none.onnx -o x --{flag} f",
               f"there is no option --{flag}\nhint: it is an option of the executable that nnaot makes")
expect(nnaot, "none.onnx -o x --tune=f", "there is no option --tune\nhint: it is an option of the executable")
expect(nnaot, "none.onnx -o x --tunes", "did you mean --tune?\nhint: it is an option of the executable that nnaot makes")
expect(nnaot, "none.onnx -o x --such", "hint: 'nnaot --help' lists the options")
expect(nnaot, "none.onnx -o x --target cuda --link default", "--link is static or shared, not 'default'")
expect(nnaot, "none.onnx -o x --target cuda --aot-plans default", "--aot-plans is yes or no, not 'default'")
expect(nnaot, "none.onnx --print -o x", "--print may be several options")
for program in nnaot, opt:
    for option in "passes", "print-before", "print-after":
        expect(program, f"none.onnx -o x --{option}=nope", "unknown pass 'nope'")
        expect(program, f"none.onnx -o x --{option}=nope", "hint: nnaot-opt --list shows the passes")
expect(nnaot, "a.onnx b.onnx", "more than one model: 'b.onnx'")
for program in opt, evaluate:
    expect(program, "a.nn b.nn", "more than one input: 'b.nn'")
for option in ("loss y", "optimizer adam", "freeze w", "detach n", "init random", "clip-norm 1", "accumulate 2",
               "micro-batches 2"):
    expect(nnaot, f"none.onnx -o x --passes=train --{option}", f"--{option.split()[0]} has no effect with --passes")
for option in "batch 4", "dim n=4", "batch-dim n":
    expect(nnaot, f"none.nn -o x --{option}", f"--{option.split()[0]} has no effect with a module in text form")
expect(nnaot, "none.onnx -o x --split-ranks --emit nn", "--split-ranks has no effect with --emit nn")
expect(nnaot, "none.onnx -o x --loss y --jobs -1", "--jobs cannot be -1, only 0 to 2147483647")
expect(nnaot, "none.onnx -o x --loss y --jobs 2147483648", "--jobs cannot be 2147483648")
expect(nnaot, "none.onnx -o x --cache d --emit c", "--cache has no effect with --emit c")
expect(nnaot, "none.onnx -o x --passes=optimizer(name=sgd:lr=0.1)", "give --lr")
expect(nnaot, "none.onnx -o x --train w[12]", "--train 'w[12]': a row cannot be trained alone")
if any(len(line) > 100 for line in help_text.split("Losses,")[0].splitlines()[3:]):
    wrong.append("--help has a line of more than 100 letters")
for lr in "nan", "-1", "inf", "abc", "":
    expect(nnaot, f"none.onnx -o x --lr={lr}", "--lr")
for option in "warmup=-5", "warmup=nan", "warmup=1.5", "warmup", "min=-1", "min=0.5", "warm=3":
    expect(nnaot, f"none.onnx -o x --lr 0.1 --lr-schedule linear:{option}", "--lr-schedule")
expect(nnaot, "none.onnx -o x --optimizer sgd:lr=1e400", "lr wants a finite number that is not negative, not '1e400'")
expect(nnaot, "none.onnx -o x --init random:9223372036854775808", "--init random:9223372036854775808: the seed is more than")
for option in "--summary", "--comm-manifest", "--trace", "--report", "--report-json":
    expect(nnaot, f"none.onnx -o x {option}=", f"{option} wants the name of a file, not ''")
for dim in "foo", "foo=", "=3", "foo=x", "foo=0", "foo=-1":
    expect(nnaot, f"none.onnx -o x --dim {dim}", "--dim wants NAME=SIZE")
# Errors in the text of a plan are usage errors, errors in its programs are input errors.
for plan, said in [
    ("dp=3", "the plan 'dp=3' is for 3 ranks, not for 4"), ("dp,tp=3", "is for multiples of 3 ranks, not for 4"),
    ("dp,tp", "does not say how many ranks 'dp' and 'tp' have"), ("dp=2,dp=2", "the plan has 'dp' twice"),
    ("dp=2,", "'' is no part of a plan"), (",", "'' is no part of a plan"), ("dp=", "'dp=' is no part of a plan"),
    ("dp=0", "'dp=0' is no part of a plan"), ("dp=-2", "'dp=-2' is no part"), ("dp=2x", "'dp=2x' is no part"),
    ("dp=9999999999", "'dp=9999999999' is no part"), ("=4", "'=4' is no part of a plan"),
    ("dp=2147483647,tp=2147483647,sp=2147483647", "is for too many ranks"),
    ("a,b,c,d,e,f", "a plan has at most 5 programs"), ("a,b,c,d,e,f", "a program in a file can be several: its 'factors'"),
    ("zero9=4", "the plans are: auto, coshard"), ("coshard:x=4", "'x' of 'coshard:x' is no number with layers"),
    ("coshard:=4", "'' of 'coshard:' is no number"),
    ("coshard:4@2-1", "the layers of '4@2-1' of 'coshard:4@2-1' end before they begin"),
    ("coshard:0", "'0' of 'coshard:0' is no number"), ("pp_interleaved:0", "hint: write pp_interleaved:4, or"), ("coshard:4@", "'4@' of"), ("coshard:4@1-", "'4@1-' of"),
    ("coshard:99999999999", "is no number with layers"), ("coshard:4;2", "'4;2' of"), ("coshard:4@0", "layers count from 1"), ("tpp=4", "did you mean tp?"), ("dp:x", "the plan 'dp' takes no numbers"),
    ("nosuch:x", "there is no plan 'nosuch'"), ("auto:x", "the plan 'auto' stands alone"), ("none:4=4", "there is no plan 'none'"),
    ("coshard" + ":2@1" * 1025, "a program takes at most 1024 numbers"), ("coshard:2=2,coshard:4=2", "the plan has 'coshard' twice"),
]:
    expect(nnaot, f"none.onnx -o x -g 4 --plan {plan}", said)
for n in "0", "-1", "1048577", "99999999999":
    expect(nnaot, f"none.onnx -o x -g {n} --plan tp", f"--ranks cannot be {n}, only 1 to 1048576")
expect(nnaot, "none.onnx -o x --batch 8 --accumulate 2048 --micro-batches 1024",
       "--accumulate times --micro-batches is at most 1048576")
here = str(pathlib.Path(__file__).parent)
expect(nnaot, "none.onnx -o x -g 4 --plan none.lua", "none.lua: error: the file cannot be read: No such file", 1)
expect(nnaot, f"none.onnx -o x -g 4 --plan {here}/", "the file cannot be read: Is a directory", 1)
expect(nnaot, "none.onnx -o x -g 4 --plan /dev/zero", "/dev/zero: error: the file is larger than", 1)
expect(nnaot, "none.onnx -o x -g 4 --plan /dev/null", "/dev/null: error: the program has no function 'step'", 1)
expect(nnaot, f"none.onnx -o x -g 4 --plan dp=2,{nnaot}=2", "error: ", 1)  # no text, or too large
# The same holds for the name of a cluster and the contents of its file.
expect(nnaot, "none.onnx -o x --cluster none", "there is no cluster 'none'")
expect(nnaot, "none.onnx -o x --cluster mi300x:1x8", "nnaot has no target for these gpus: make only a plan with --emit plan")
expect(nnaot, "none.onnx -o x --cluster h100:1x8", "compile with --target cuda, or make only a plan with --emit plan")
expect(nnaot, "none.onnx -o x --cluster h100:0x2", "'0x2' is no size of a cluster")
expect(nnaot, "none.onnx -o x -g 9 --cluster h100:1x8 --emit plan", "'h100:1x8' has 8 devices for 9 ranks")
expect(nnaot, "none.onnx -o x -g 2 --cluster h100:1x1 --emit plan", "'h100:1x1' has 1 device for 2 ranks")
expect(nnaot, "none.onnx -o x --cluster h100:1x8", "hint: compile with --target cuda, or make only a plan")
expect(nnaot, "none.onnx -o x --cluster h100:1x8", "the devices of 'h100:1x8' are gpus, and the executable is for cpu")
expect(nnaot, "none.onnx -o x --cluster h100:1x8 --target cpu", "gpus, and the --target is for cpu")
expect(nnaot, "none.onnx -o x --cluster cpu:1x8 --target cuda", "processors, and the --target is for gpus")
for n, said in [
    ("0", "--per-node cannot be 0, only 1 to"), ("-2", "--per-node cannot be -2"), ("1048577", "--per-node cannot be 1048577"),
    ("3", "--per-node: 4 ranks do not fill hosts of 3"), ("8", "--per-node: 4 ranks do not fill hosts of 8"),
    ("x", "--per-node wants an integer, not 'x'"), ("2 --cluster cpu:2x2", "--per-node has no effect with --cluster"),
    ("2 --cluster none.lua", "--per-node has no effect with --cluster"),
    ("2 --passes=train", "--per-node has no effect with --passes"),
]:
    expect(nnaot, f"none.onnx -o x -g 4 --per-node {n}", said)
expect(nnaot, "none.onnx -o x -g 40000 --per-node 2", "with at most 32768 devices")
expect(nnaot, "none.onnx --bacth 3 -o x", "there is no option --bacth; did you mean --batch?")
expect(nnaot, "none.onnx --stpes 3 -o x", "there is no option --stpes; did you mean --steps?\nhint: it is an option of the executable")
expect(nnaot, "none.onnx -o x --cluster none.lua", "none.lua: error: the file cannot be read", 1)
# These options are right; then the model is missing.
expect(nnaot, "none.onnx -o x --lr 0.1 --lr-schedule linear:warmup=5,min=0.1 --dim n=3", "none.onnx", 1)
print("\n".join(wrong))
sys.exit(bool(wrong))
