# Text tests: a file with RUN lines, and CHECK lines for FileCheck.
#
#     lit -Dbin=build/bin tests                     all of them
#     lit -v -Dbin=build/bin tests/ir/types.nn      one, with its output if it fails
#
# In a RUN line `nnaot-opt`, `nnaot-eval`, `nnaot` and `nnaot-plan` are the programs of the build, %python is the
# interpreter that runs lit and has onnx, FileCheck is LLVM's, %s is the file, %t a name for temporary files, %S the
# file's folder. `not` inverts the exit status: 1 (wrong input) and 2 (usage) count as failures, a signal does not.

import os
import platform
import shutil
import sys

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
bin_dir = os.path.abspath(lit_config.params.get("bin", os.path.join(root, "build", "bin")))
filecheck = (lit_config.params.get("filecheck") or shutil.which("FileCheck")
             or shutil.which("FileCheck-14") or "FileCheck")

config.name = "nnaot"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".nn", ".test"]
# The programs of tests/ops read ops/*.nn.
config.excludes = ["inputs", "ops"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.abspath(
    lit_config.params.get("out", os.path.join(os.path.dirname(bin_dir), "lit")))
# Leaks are no errors: the compiler frees nothing before it ends.
config.environment["ASAN_OPTIONS"] = "detect_leaks=0"
config.environment["OMP_NUM_THREADS"] = "2"

programs = ["nnaot", "nnaot-opt", "nnaot-eval", "nnaot-plan"]
for name in programs:
    # Matches whole words only: not in nnaot-opt, tests/nnaot, or nnaot.nn.
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w.-])", os.path.join(bin_dir, name)))
    if os.path.exists(os.path.join(bin_dir, name)):
        config.available_features.add(name)
emulated = os.path.join(os.path.dirname(bin_dir), "emulator", "nvcc")
if os.path.exists(emulated):
    config.available_features.add("cuda")  # the target is built; a GPU and the runtime's kernels may be absent
    with open(os.path.join(os.path.dirname(bin_dir), "CMakeCache.txt")) as cache:
        if "NNAOT_CUDA_ARCHITECTURES:STRING=80;90;100\n" in cache:
            config.available_features.add("cuda-80-90-100")  # the architectures that nnaot is built for
if os.path.exists(os.path.join(os.path.dirname(emulated), "libnnrt_cuda.a")):
    config.available_features.add("emulator")  # %nvcc: GPU programs run here
if platform.machine() == "x86_64":
    config.available_features.add("x86_64")
config.substitutions.append(("%nvcc", emulated))
config.substitutions.append(("%python", sys.executable))
# Sanitizers slow everything down several times.  REQUIRES: release skips planner searches of several seconds whose code
# other tests cover, and scripts over long lists take each %every-th item.
sanitized = lit_config.params.get("sanitized", "OFF") == "ON"
if not sanitized:
    config.available_features.add("release")
config.substitutions.append(("%every", "4" if sanitized else "1"))
config.substitutions.append((r"\bFileCheck\b", filecheck))
# LLVM's `not` is installed beside FileCheck.
folder = os.path.dirname(os.path.realpath(filecheck))
not_ = next((p for p in (os.path.join(folder, "not"), shutil.which("not-14")) if p and os.path.exists(p)), "not")
config.substitutions.append((r"(?<![\w./%-])not(?=\s)", not_))
