#!/usr/bin/env python3
"""Finds the test that detects each fault in the sources, and its time:  planted_faults.py --results FILE.jsonl [--seed N] [--count 40]

A fault is one changed place of one C file: a sign, a bound, an index, a missing call, a wrong group
(fault_places.py).  The faults of a seed are random: each folder of FOLDERS and each kind has its share, the
probability of a file is proportional to its length, and the k-th fault is the same for the same sources.  Each is planted
in a copy of the tree, the affected targets are built, and tests run on all processors, cheapest first, until one fails: those
that tests/changed.txt has for the file (`changed`), those with the label `quick`, then all others (`rest`), in the
release build, at last also in the build with sanitizers.  `quick` also runs if the test of `changed` that found the fault
is not a quick one.

    --list                   the faults and their changes
    --show K                 one of them, as a diff
    --baseline               first run every test without a fault: failing tests are left out, and the times give the
                             order, which is otherwise that of tests/seconds.txt
    --only K,…               some of the faults
    --quick-only             leave out the rest of the suite; a later call without it continues with the survivors
    --equivalent K:REASON    fault K changes no output: draw another in its place
    --summary                the tables of all results for these sources
    --work DIR               the copy of the tree, a git worktree, created if missing (build-faults)
    --tests REGEX            only tests with such names, for trials: the results are not in the summary
    --builds build,…         only these build folders: a survivor there has not survived all
    --jobs N                 processors, for building and for tests
    --self-check             plant faults in a small text: a test of this script

The results file has a line for each test that ran, for each fault and for each rejected one, so a campaign
resumes at its end, also after a commit that changes tests alone.
"""

import argparse
import collections
import dataclasses
import difflib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import fault_places
import select_tests

# The k-th fault is in the k-th folder, of the k-th kind: eight and five have no common factor, so forty have every pair.
FOLDERS = ["passes", "rt", "passes", "backend", "passes", "rt", "passes", "frontend"]
KINDS = list(fault_places.KINDS)
BUILDS = {"build": "release", "build-dev": "dev"}                    # and their presets
STAGES = {"changed": ["build"], "quick": ["build"], "rest": list(BUILDS)}
BUILD_LIMIT = 900 # seconds
LEAST_LIMIT = 60 # seconds: the least time limit of a test; otherwise three times its usual time
# Files whose output is messages, times or measured choices; HAVE_GROUPS are the files for faults of groups.
SAY_ONLY = re.compile(r"passes/(base/(diag|clock)|ir/op_display_name|manager/dump|planner/\w+/(failed|explain|conflict)|prove/prove_why)\.c|"
                      r"frontend/onnx_report\.c|rt/(describe|log|progress|error)\.c|rt/cuda/(check|measure|tune|watch)\.c|"
                      r"rt/cuda/standin/.*")
HAVE_GROUPS = re.compile(r"rt/(?!cpu/(?!comm|device)|cuda/(?!coll|move|comm_threads|nccl|comm_host))|backend/|passes/(comm|sharding)/|"
                         r"passes/ir/(ops/comm|mesh|collective|analysis/(place|boxes))|frontend/")
CUDA_SHARE = 0.25 # of a line's probability: CUDA has as many lines as the CPU, and most run only on a GPU


def git(*words, cwd=ROOT):
    return subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def sources_id():
    """Returns an id of the committed sources, independent of the tests."""
    folders = sorted(set(FOLDERS))
    if git("status", "--porcelain", "--", *folders):
        sys.exit(f"{', '.join(folders)}: there are changes that are not committed")
    return "-".join(git("rev-parse", "--short=7", f"HEAD:{folder}") for folder in folders)


# ---- drawing

class Compiler:
    """Checks that a file's text compiles without warnings, with the commands of the build folder but without output."""

    def __init__(self, build):
        commands = json.loads((build / "compile_commands.json").read_text())
        self.command = {}
        for entry in commands:
            # CUDA C is compiled as for the emulator; nvcc is slow and has fewer warnings.
            if "nvcc" not in entry["command"].split()[0] and "nvcc -" not in entry["command"]:
                self.command.setdefault(entry["file"], entry["command"])

    def accepts(self, root, path, text):
        words = shlex.split(self.command.get(str(root / path), ""))
        if not words:
            return False
        while "ccache" in words[0]:
            words.pop(0)
        for option in "-o", "-c":
            at = words.index(option)
            del words[at:at + 2]
        language = [] if "-x" in words else ["-x", "c"]
        words = [w for w in words if w != "-DNDEBUG"] + ["-Werror", "-fsyntax-only", *language, "-"]
        folder = (root / path).parent # for `#include "…"`
        done = subprocess.run(words, cwd=folder, input=text, text=True, capture_output=True)
        return done.returncode == 0


class Fault:
    def __init__(self, path, text, place):
        self.path, self.text, self.place = path, text, place
        self.kind, self.variant = place.kind, place.variant
        self.line = text.count("\n", 0, place.start) + 1
        self.new_text = place.applied(text)
        first = text.rfind("\n", 0, place.start) + 1
        ends = text.find("\n", place.end), self.new_text.find("\n", place.start + len(place.new))
        self.before = " ".join(text[first:ends[0]].split())
        self.after = " ".join(self.new_text[first:ends[1]].split())
        self.key = f"{path}:{place.start}:{place.end}:{place.new}"

    def diff(self):
        return "".join(difflib.unified_diff(self.text.splitlines(True), self.new_text.splitlines(True),
                                            f"a/{self.path}", f"b/{self.path}"))

    def row(self):
        return {"key": self.key, "kind": self.kind, "variant": self.variant, "place": f"{self.path}:{self.line}",
                "before": self.before, "after": self.after}


class Lot:
    """Draws the faults of a seed from the sources of a tree."""

    def __init__(self, seed, root, build, folders):
        self.seed, self.root, self.compiler = seed, root, Compiler(build)
        self.folders = [f for f in FOLDERS if f in folders]
        self.files = collections.defaultdict(list)
        names = git("ls-files", "--", *self.folders, cwd=root).split("\n")
        self.text = {n: (root / n).read_text() for n in names if n.endswith((".c", ".cu")) and not SAY_ONLY.fullmatch(n)}
        for name, text in self.text.items():
            lines = sum(bool(line.strip()) and not line.lstrip().startswith("//") for line in text.split("\n"))
            self.files[name.split("/")[0]].append((name, lines * (CUDA_SHARE if name.startswith("rt/cuda/") else 1)))
        self.places = {}
        self.compiles_as_it_is = set()

    def places_in(self, name, kind):
        """Returns {variant: [place …]} of a file."""
        if (name, kind) not in self.places:
            found = collections.defaultdict(list)
            for place in fault_places.faults_of(self.text[name], kind):
                found[place.variant].append(place)
            self.places[name, kind] = found
        return self.places[name, kind]

    def draw(self, k, rejected):
        """Returns the k-th fault: the first one drawn for k that compiles and is not among the rejected keys."""
        lot = random.Random(f"{self.seed} {k}")
        folder, kind = self.folders[k % len(self.folders)], KINDS[k % len(KINDS)]
        files = [f for f in self.files[folder] if kind != "group" or HAVE_GROUPS.match(f[0])]
        for _ in range(1000):
            name = lot.choices([f[0] for f in files], [f[1] for f in files])[0]
            found = self.places_in(name, kind)
            if not found:
                continue
            place = lot.choice(found[lot.choice(sorted(found))])
            fault = Fault(name, self.text[name], place)
            if fault.key in rejected:
                continue
            if self.compiler.accepts(self.root, name, fault.new_text):
                return fault
            if name not in self.compiles_as_it_is and not self.compiler.accepts(self.root, name, self.text[name]):
                sys.exit(f"{name} does not compile as it is: the build folder lacks generated headers; build it first")
            self.compiles_as_it_is.add(name)
        sys.exit(f"no {kind} in {folder} compiles")


# ---- results of earlier calls

class Results:
    """The lines of the results file for these sources.  The kind of a line is test, fault or rejected."""

    def __init__(self, path, sources):
        self.path, self.sources, self.lines = path, sources, []
        if path and path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.lines = [line for line in lines if line["sources"] == sources]

    def add(self, what, **values):
        line = {"what": what, "sources": self.sources, **values}
        self.lines.append(line)
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def of(self, what, **values):
        return [line for line in self.lines if line["what"] == what and all(line.get(k) == v for k, v in values.items())]

    def rejected(self, seed, k):
        return {line["key"] for line in self.of("rejected", seed=seed, k=k)}

    def ran(self, key):
        """Returns {(build, test): line} of the tests that ran with a fault; key None: without."""
        return {(line["build"], line["test"]): line for line in self.of("test", key=key)}


# ---- the copy of the tree

class Work:
    def __init__(self, path, builds, jobs):
        self.path, self.jobs = path, jobs
        if path == ROOT:
            sys.exit("--work is a tree for faults alone")
        if not path.exists():
            git("worktree", "add", "--detach", str(path), "HEAD")
        elif pathlib.Path(git("rev-parse", "--show-toplevel", cwd=path)) != path:
            sys.exit(f"{path} is no worktree of this repository")
        git("checkout", "--force", "--detach", git("rev-parse", "HEAD"), cwd=path) # removes the fault of a killed call
        if not (path / ".venv").exists():
            (path / ".venv").symlink_to(ROOT / ".venv")
        for build in builds:
            if not (path / build / "build.ninja").exists():
                subprocess.run(["cmake", "--preset", BUILDS[build]], cwd=path, check=True,
                               stdout=subprocess.DEVNULL)

    def build(self, build, targets):
        """Builds outdated targets; returns None, or the compiler's output.  The build runs programs of ours, which may hang."""
        job = subprocess.Popen(["ninja", "-C", str(self.path / build), f"-j{self.jobs}", *targets], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said, _ = job.communicate(timeout=BUILD_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            said, _ = job.communicate()
        return said[-2000:] or "it was killed" if job.returncode else None

    def plant(self, fault):
        path = self.path / fault.path
        if path.read_text() != fault.text:
            sys.exit(f"{path} is not what the fault was drawn from")
        path.write_text(fault.new_text)

    def restore(self, fault):
        (self.path / fault.path).write_text(fault.text)


def first_to_be_killed():
    """Makes the process the first victim of the OOM killer: a program with a fault may use all memory."""
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")


def quoted(value):
    """Returns a property's value in CMake's syntax."""
    return f"[==[{';'.join(map(str, value)) if isinstance(value, list) else 'ON' if value is True else value}]==]"


def write_ctest_file(folder, tests, seconds):
    """Writes a list of tests for ctest, the cheapest first, each with a time limit that detects hangs."""
    lines = []
    for test in tests:
        usual = seconds.get((test.build, test.name), 0)
        properties = {**test.properties, "COST": 10000 - usual, "TIMEOUT": max(LEAST_LIMIT, 3 * usual) if seconds else 1200}
        lines.append(f"add_test({' '.join(map(quoted, (test.name, *test.command)))})")
        lines.append(f"set_tests_properties({quoted(test.name)} PROPERTIES " +
                     " ".join(f"{name} {quoted(value)}" for name, value in properties.items()) + ")")
    shutil.rmtree(folder, ignore_errors=True) # also removes ctest's list of failed tests, which it would run first
    folder.mkdir(parents=True)
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines))


def run_ctest(folder, jobs, stop):
    """Yields (name, passed, failed or timeout, seconds, the failed text test of lit) of each test that ran; with `stop`
    no test begins after a failure."""
    command = ["ctest", "--test-dir", folder, "-j", jobs, "--output-on-failure", "--output-junit", "junit.xml",
               "--test-output-size-failed", 20000, *(["--stop-on-failure"] if stop else [])]
    running = subprocess.Popen([str(w) for w in command], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                               start_new_session=True, preexec_fn=first_to_be_killed,
                               env={**os.environ, "LIT_OPTS": "--max-failures=1"})
    running.wait()
    try: # kills remaining child processes
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for case in tree.parse(folder / "junit.xml").getroot().iter("testcase"):
        if case.get("status") == "notrun":
            continue
        failure = case.find("failure")
        how = "passed" if failure is None else "timeout" if "imeout" in failure.get("message", "") else "failed"
        text_test = re.search(r"^(?:FAIL|TIMEOUT|UNRESOLVED): nnaot :: (\S+)", case.findtext("system-out") or "", re.M)
        yield case.get("name"), how, float(case.get("time")), text_test and text_test[1] if how != "passed" else None


class Suite:
    """The tests of the copy, cheapest first, without those that fail without a fault."""

    def __init__(self, work, results, builds, pattern):
        self.work, self.results, self.builds = work, results, builds
        table = (ROOT / "tests/seconds.txt").read_text()
        self.seconds = {("build-dev" if name.endswith(".dev") else "build", name): float(seconds)
                        for name, seconds in re.findall(r"^([^#\s]+) (\S+)$", table, re.M)}
        # Like tests/run: training tests run in release only.
        self.tests = [test for build in builds for test in self.listed(build)
                      if re.search(pattern, test.name) and not (build == "build-dev" and "e2e" in test.labels)]
        self.use_baseline()

    def listed(self, build):
        """Returns the tests of a build folder.  Before its program is built, a test has no command."""
        return [dataclasses.replace(test, build=build) for test in select_tests.ctest_list(self.work.path / build)]

    def use_baseline(self):
        lines = self.results.ran(None)
        self.seconds.update({at: line["seconds"] for at, line in lines.items()})
        self.broken = {at for at, line in lines.items() if line["how"] != "passed"}
        self.tests.sort(key=lambda t: self.seconds.get((t.build, t.name), 0)) # stable: ctest's order without known
                                                                              # times

    def targets(self, build, tests):
        """Returns ninja's targets for tests: their programs, or those of all tests if one is a script."""
        top, targets = str(self.work.path / build) + "/", set()
        for test in tests:
            program = test.command[0] if test.command else ""
            if not program.startswith(top) and test.name != "layers":
                return ["test_programs"]
            targets.add(program.removeprefix(top))
        return sorted(t for t in targets if not t.startswith("/"))

    def run(self, tests, key, stop=True):
        """Returns the line of the first of these tests that fails, or None; without `stop` all run.  Tests with results
        do not run again; a failure counts only if the test fails twice."""
        while True:
            known = self.results.ran(key)
            failed = [known[t.build, t.name] for t in tests if known.get((t.build, t.name), {}).get("how", "passed") != "passed"]
            waiting = [t for t in tests if (t.build, t.name) not in known]
            if not waiting or (failed and stop):
                return failed[0] if failed else None
            if not all(test.command for test in waiting):
                listed = {test.name: test for build in {t.build for t in waiting} for test in self.listed(build)}
                waiting = [listed[test.name] for test in waiting]
            by_name = {test.name: test for test in waiting}
            folder = self.work.path / "build/faults"
            write_ctest_file(folder, waiting, self.seconds if key else {})
            ended = list(run_ctest(folder, self.work.jobs, stop))
            if not ended:
                sys.exit(f"ctest runs none of {', '.join(by_name)}")
            for name, how, seconds, text_test in ended:
                if how == "failed":
                    write_ctest_file(folder, [by_name[name]], self.seconds if key else {})
                    how = next(run_ctest(folder, 1, False))[1]
                self.results.add("test", key=key, build=by_name[name].build, test=name, how=how, seconds=seconds,
                                 text_test=text_test if how != "passed" else None)

    def baseline(self):
        for build in self.builds:
            tests = [t for t in self.tests if t.build == build]
            trouble = self.work.build(build, self.targets(build, tests)) if tests else None
            if trouble:
                sys.exit(f"{build}:\n{trouble}")
            self.run(tests, None, stop=False)
        for (build, name), line in self.results.ran(None).items():
            print(f"{build} {name:32} {line['seconds']:8.2f}  {line['how'].upper()}")
        self.use_baseline()

    def stage(self, name, words):
        """Returns the tests of a stage in the order in which they run."""
        tests = [t for t in self.tests if t.build in STAGES[name] and (t.build, t.name) not in self.broken]
        if name == "rest":
            return sorted(tests, key=lambda t: STAGES[name].index(t.build))
        return select_tests.select(tests, words if name == "changed" else ["quick"])


# ---- a trial

class DoesNotBuild(Exception):
    pass


def trial(work, suite, results, seed, k, fault, quick_only, tests):
    """Plants the fault and runs tests until one fails; adds the line of the results."""
    words = select_tests.labels_for([fault.path])
    build_seconds, test_seconds = 0.0, 0.0
    found, quick = None, None

    def first_failure(of_stage):
        nonlocal build_seconds, test_seconds
        for build in suite.builds:
            of_build = [t for t in of_stage if t.build == build]
            if not of_build:
                continue
            began = time.monotonic()
            trouble = work.build(build, suite.targets(build, of_build))
            build_seconds += time.monotonic() - began
            if trouble:
                raise DoesNotBuild(trouble)
            began = time.monotonic()
            line = suite.run(of_build, fault.key)
            test_seconds += time.monotonic() - began
            if line:
                return line
        return None

    work.plant(fault)
    try:
        for stage in STAGES:
            tests_of_stage = suite.stage(stage, words)
            if stage == "quick":
                # The test that failed in `changed` may be a quick one.
                in_quick = {(t.build, t.name) for t in tests_of_stage}
                line = found if found and (found["build"], found["test"]) in in_quick else None
                seconds_before = test_seconds
                line = line or first_failure(tests_of_stage)
                quick = line and line["test"]
                if found:
                    test_seconds = seconds_before
            elif stage == "rest" and quick_only:
                break
            else:
                line = first_failure(tests_of_stage)
            if line and not found:
                found, found_stage = line, stage
            if found and stage != "changed":
                break
    finally:
        work.restore(fault)
    if found:
        ending = {"found_by": found["test"], "text_test": found["text_test"], "build": found["build"], "how": found["how"],
                  "stage": found_stage}
    else:
        ending = {"found_by": None if quick_only or suite.builds != list(BUILDS) else "survived", "stage": None}
    results.add("fault", seed=seed, k=k, tests=tests, **fault.row(), **ending, seconds=round(test_seconds, 1),
                build_seconds=round(build_seconds, 1), quick=quick)
    return results.lines[-1]


def say_line(line):
    how = f"{line['found_by'] or 'not by these'} {line.get('text_test') or ''}".strip()
    print(f"{line['k']:3} {line['kind']:6} {line['place']:36} {how} ({line['stage'] or 'all'}, {line['seconds']:.1f} s; "
          f"built in {line['build_seconds']:.1f} s); quick: {line['quick'] or 'no'}", flush=True)


def summary(results):
    """Prints tables of all faults of these sources, of every seed."""
    last = {(line["seed"], line["k"]): line for line in results.of("fault", tests="")}
    for reject in results.lines:
        if reject["what"] == "rejected" and last.get((reject["seed"], reject["k"]), {}).get("key") == reject["key"]:
            del last[reject["seed"], reject["k"]]
    lines = list(last.values())
    if not lines:
        return
    is_found = lambda line: line["found_by"] not in (None, "survived")
    print(f"{'':10} {'faults':>7} {'found':>6} {'changed':>8} {'quick':>6} {'survived':>9}  median seconds")
    rows = [("all", lines)]
    rows += [(kind, [x for x in lines if x["kind"] == kind]) for kind in KINDS]
    rows += [(folder, [x for x in lines if x["place"].startswith(folder + "/")]) for folder in sorted(set(FOLDERS))]
    for name, some in rows:
        found = [line for line in some if is_found(line)]
        median = f"{statistics.median(line['seconds'] for line in found):.1f}" if found else "-"
        print(f"{name:10} {len(some):7} {len(found):6} {sum(line['stage'] == 'changed' for line in some):8} "
              f"{sum(bool(line['quick']) for line in some):6} {sum(line['found_by'] == 'survived' for line in some):9}  {median}")
    for title, some in (("survived the whole suite", [x for x in lines if x["found_by"] == "survived"]),
                        ("not by quick, and the rest has not run", [x for x in lines if x["found_by"] is None])):
        for line in some:
            print(f"{title}: seed {line['seed']}, {line['k']}: {line['place']}\n  - {line['before']}\n  + {line['after']}")
    for line in results.of("rejected"):
        print(f"not counted: seed {line['seed']}, {line['k']}: {line['place']}: {line['reason']}")
    broken = sorted({line["test"] for line in results.of("test", key=None) if line["how"] != "passed"})
    if broken:
        print("fail without a fault, and are left out: " + ", ".join(broken))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--only", type=lambda text: [int(k) for k in text.split(",")])
    parser.add_argument("--work", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build-faults")
    parser.add_argument("--tests", default="", metavar="REGEX")
    parser.add_argument("--builds", type=lambda text: text.split(","), default=list(BUILDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--equivalent", metavar="K:REASON", action="append", default=[])
    parser.add_argument("--show", type=int, metavar="K")
    for name in "list", "baseline", "quick-only", "summary", "self-check":
        parser.add_argument("--" + name, action="store_true")
    options = parser.parse_args()
    if options.self_check:
        return fault_places.self_check()
    results = Results(options.results, sources_id())
    if options.summary:
        return summary(results)

    looks_only = options.list or options.show is not None or options.equivalent
    work = None if looks_only else Work(options.work, options.builds, options.jobs)
    root = ROOT if looks_only else work.path
    if not (root / "build/compile_commands.json").exists():
        sys.exit("build is not configured: cmake --preset release")
    lot = Lot(options.seed, root, root / "build", FOLDERS)
    wanted = options.only or range(options.count)

    def draw(k):
        return lot.draw(k, results.rejected(options.seed, k))

    for text in options.equivalent:
        k, reason = text.split(":", 1)
        results.add("rejected", seed=options.seed, k=int(k), **draw(int(k)).row(), reason=reason.strip())
    if options.show is not None:
        print(draw(options.show).diff(), end="")
    if options.list:
        for k in wanted:
            fault = draw(k)
            print(f"{k:3} {fault.kind:6} {fault.variant:11} {fault.path}:{fault.line}\n    - {fault.before}\n    + {fault.after}",
                  flush=True)
    if looks_only:
        return

    suite = Suite(work, results, options.builds, options.tests)
    if options.baseline:
        suite.baseline()
    for k in wanted:
        while True:
            fault = draw(k)
            known = results.of("fault", seed=options.seed, k=k, key=fault.key, tests=options.tests)
            if known and (options.quick_only or known[-1]["found_by"] is not None):
                break
            try:
                say_line(trial(work, suite, results, options.seed, k, fault, options.quick_only, options.tests))
                break
            except DoesNotBuild as trouble:
                results.add("rejected", seed=options.seed, k=k, **fault.row(), reason="does not build")
    summary(results)


if __name__ == "__main__":
    main()
