"""Libraries come from trusted folders only, and programs are hardened:  libraries.py

Prints a table of the programs and of an executable, as checksec does, and checks each line of it; then puts hostile libraries
into the current folder, beside the model, and beside nnaot, and checks that no program and no executable loads one.
"""

import grp
import os
import pathlib
import pwd
import re
import shutil
import stat
import sys
import tempfile

import common
from common import BUILD, NNAOT, SAMPLES, check, run

PROGRAMS = ["nnaot", "nnaot-opt", "nnaot-eval", "nnaot-plan"]
MODEL = SAMPLES / "mlp/mlp.onnx"
FLAGS = ["-g", 2, "--batch", 16, "--loss", "cross_entropy(logits)"]
DATA = ["--input", f"x={SAMPLES / 'mlp/x.npy'}", "--input", f"labels={SAMPLES / 'mlp/labels.npy'}"]
HOSTILE = r"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { close(open(MARK, O_CREAT | O_WRONLY, 0600)); }
"""


def elf(path):
    """Returns the properties of a program: type, relocations, flags, RUNPATH, NEEDED, and whether it has canaries."""
    head = run("readelf", "-hW", path)
    segments = run("readelf", "-lW", path)
    dynamic = run("readelf", "-dW", path)
    symbols = run("readelf", "--dyn-syms", "-W", path)
    runpath = re.search(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic)
    return {
        "pie": "DYN" in re.search(r"Type:\s+(\w+)", head)[1] and "PIE" in dynamic,
        "relro": "GNU_RELRO" in segments and "BIND_NOW" in dynamic,
        "nx": re.search(r"GNU_STACK.*\bRW\b", segments) is not None,
        "canary": "__stack_chk_fail" in symbols,
        "fortify": re.search(r"\w+_chk@", symbols.replace("__stack_chk_fail", "")) is not None,
        "runpath": runpath[1].split(":") if runpath else [],
        "needed": re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic),
    }


def is_private_group(gid):
    """Returns whether the group is the user's own, without other members."""
    user = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(gid)
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def foreign(folder):
    """Returns the folder at or above this one that another user may change, or None."""
    at = pathlib.Path(folder).resolve()
    for p in [at, *at.parents]:
        st = p.stat()
        sticky = p != at and st.st_mode & stat.S_ISVTX
        wide = st.st_mode & 0o002 or (st.st_mode & 0o020 and not is_private_group(st.st_gid))
        if st.st_uid not in (0, os.geteuid()) or (wide and not sticky):
            return p
    return None


def table(programs, sanitized):
    print(f"{'program':12} {'PIE':>4} {'RELRO':>6} {'NX':>3} {'canary':>7} {'FORTIFY':>8}  RUNPATH")
    for name, path in programs.items():
        e = elf(path)
        print(f"{name:12} {str(e['pie']):>5} {'full' if e['relro'] else '-':>5} {str(e['nx']):>4} {str(e['canary']):>6} "
              f"{str(e['fortify']):>8}  {':'.join(e['runpath'])}")
        for what in ("pie", "relro", "nx", "canary", "fortify"):
            check(f"{name}: {what}", e[what] or (what == "fortify" and sanitized), e)
        for folder in e["runpath"]:
            origin = folder in ("$ORIGIN", "$ORIGIN/lib", "$ORIGIN/../lib/nnaot")
            check(f"{name}: RUNPATH has '{folder}'", origin or (folder.startswith("/") and not foreign(folder)))


def poison(work, programs):
    """Returns a folder of libraries, by the names that the programs need, which leave a file when they are loaded."""
    folder, mark = work / "hostile", work / "loaded"
    folder.mkdir()
    (work / "hostile.c").write_text(HOSTILE)
    names = {n for p in programs.values() for n in elf(p)["needed"] if n != "libc.so.6"}
    check("programs need libraries", {"libprotobuf-c.so.1", "libdnnl.so.3"} <= names, names)
    run("cc", "-shared", "-fPIC", f'-DMARK="{mark}"', work / "hostile.c", "-o", folder / "one.so")
    for n in names | {"libmpi.so", "libmpi.so.12", "libmpi.so.40", "libmpich.so.12"}:
        shutil.copy(folder / "one.so", folder / n)
    return folder, mark


def main():
    sanitized = "NNAOT_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
    env = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work).resolve()
        exe = work / "exe" / "train_rank"
        exe.parent.mkdir()
        run(NNAOT, MODEL, *FLAGS, "-o", exe, env=env)
        programs = {p: BUILD / "bin" / p for p in PROGRAMS} | {"train_rank": exe}
        table(programs, sanitized)

        # A hostile library has no symbols, so a program that loads one ends; one that is loaded later leaves the mark.
        folder, mark = poison(work, programs)
        said = run(NNAOT, "--version", ok=127, cwd=folder, env=env | {"LD_LIBRARY_PATH": "."})
        check("a hostile library is loaded if the user says so", "undefined symbol" in said, said)
        # In the current folder, beside the model, and beside nnaot.
        shutil.copy(MODEL, folder / "mlp.onnx")
        beside = folder / "bin"
        shutil.copytree(folder, beside)
        for p in PROGRAMS:
            shutil.copy(BUILD / "bin" / p, beside / p)
        for bin in (BUILD / "bin", beside):
            for command in ([bin / "nnaot", "mlp.onnx", *FLAGS, "--emit", "plan", "-o", "plan.json"],
                            [bin / "nnaot-opt", "mlp.onnx", "--batch", 16, "--passes=simplify", "-o", "m.nn"],
                            [bin / "nnaot-plan", "schedule", "--stages", 2, "--micro-batches", 2, "--kind", "gpipe"],
                            [bin / "nnaot-eval", "m.nn"]):
                alone = bin == beside and command[0].name == "nnaot-eval"  # without its oneDNN in ../lib/nnaot
                said = run(*command, ok=127 if alone else 0, cwd=folder, env=env)
                check(f"{command[0]} loads no library of these folders",
                      not mark.exists() and (not alone or "libdnnl.so.3: cannot open" in said), said)
        run(exe, *DATA, "--steps", 1, cwd=folder, env=env)
        if shutil.which("mpirun"):
            run(*common.mpirun(2), exe, *DATA, "--steps", 1, cwd=folder, env=env)
        check("an executable loads no library of the current folder", not mark.exists())

        # --rpath.
        run(NNAOT, MODEL, *FLAGS, "--rpath", "none", "-o", exe, env=env)
        check("--rpath none", elf(exe)["runpath"] == ["$ORIGIN", "$ORIGIN/lib"], elf(exe))
        run(NNAOT, MODEL, *FLAGS, "--rpath", "/opt/lib", "-o", exe, env=env)
        check("--rpath DIR", elf(exe)["runpath"] == ["$ORIGIN", "$ORIGIN/lib", "/opt/lib"], elf(exe))
        for wrong in ("lib", "", ".", "/a:", "/a,-z,execstack", "$ORIGIN"):
            said = run(NNAOT, MODEL, *FLAGS, "--rpath", wrong, "-o", work / "none", ok=2, env=env)
            check(f"--rpath '{wrong}' is refused", f"--rpath: '{wrong}' is no absolute folder" in said, said)
        said = run(NNAOT, MODEL, *FLAGS, "--rpath", "none", "--emit", "nn", "-o", work / "none", ok=2, env=env)
        check("--rpath without an executable", "--rpath has no effect with --emit nn" in said, said)

        # Others may replace the libraries of an installation: its folder is not searched, with a warning.
        prefix = work / "prefix"
        installed = prefix / "lib/nnaot"
        installed.mkdir(parents=True)
        (prefix / "bin").mkdir()
        shutil.copy(NNAOT, prefix / "bin/nnaot")
        for name in ("libnnrt.a", "libnnrt_cpu.a"):
            (installed / name).symlink_to(BUILD / "rt" / name)
        (installed / "include").symlink_to(common.ROOT / "rt")
        for library in (BUILD / "lib/nnaot").iterdir():
            (installed / library.name).symlink_to(library.resolve())
        run(prefix / "bin/nnaot", MODEL, *FLAGS, "-o", exe, env=env)
        check("the folder of an installation is searched", str(installed) in elf(exe)["runpath"], elf(exe))
        for wide in (installed, prefix / "lib"):
            wide.chmod(0o777)
            said = run(prefix / "bin/nnaot", MODEL, *FLAGS, "-o", exe, env=env)
            check("a folder that others may change is not searched", elf(exe)["runpath"] == ["$ORIGIN", "$ORIGIN/lib"], elf(exe))
            check("the warning names it", f"does not search '{installed}'" in said and
                  f"'{wide}': other users may write to it" in said, said)
            wide.chmod(0o755)
        # The user's own group may write: nobody else is in it.
        if is_private_group(os.getegid()):
            os.chown(installed, -1, os.getegid())
            installed.chmod(0o775)
            run(prefix / "bin/nnaot", MODEL, *FLAGS, "-o", exe, env=env)
            check("a folder of the user's own group is searched", str(installed) in elf(exe)["runpath"], elf(exe))
    common.finish()


main()
