"""Prints the summary of tests/run:  results.py STATUS [--times]          STATUS is ctest's

Reads the results of ctest (build/both/junit.xml) and of lit, which has a file for each ctest `text-FOLDER`: its cases
are counted instead of that ctest.  Prints the names of failed tests, and last `N passed, N failed`.

    --times   also prints the times of tests and build steps, the longest first, and writes tests/seconds.txt, by which
              the longest test of the next run begins first
"""

import pathlib
import sys
import xml.etree.ElementTree as tree

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILDS = "build", "build-dev"
HEAD = """# How long each test took, in seconds, on two cores: tests/run --times.  The longest begin first.
"""


def cases(file):
    """Returns (name, folder, seconds, outcome) of the cases in a JUnit file; outcome is passed, failed or skipped."""
    for case in tree.parse(file).getroot().iter("testcase"):
        kinds = {child.tag: child for child in case}
        outcome = "failed" if kinds.keys() & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        # ctest also calls a test skipped if its program does not exist.
        if case.get("status") == "notrun" and not kinds["skipped"].get("message", "").startswith(("SKIP_", "Disabled")):
            outcome = "failed"
        folder = case.get("classname", "")
        yield case.get("name"), folder, float(case.get("time") or 0), outcome


def build_steps(build):
    """Returns (output, seconds) of the steps of the last build of each file, from ninja's log."""
    log = ROOT / build / ".ninja_log"
    steps = {}
    for line in log.read_text().splitlines()[1:] if log.exists() else ():
        start, end, _, output, _ = line.split("\t")
        steps[output] = (int(end) - int(start)) / 1e3
    return sorted(steps.items(), key=lambda step: -step[1])


def write_seconds(tests):
    """Writes the seconds of passed tests; other tests keep their old row."""
    file = ROOT / "tests" / "seconds.txt"
    rows = dict(line.split() for line in file.read_text().splitlines() if line and line[0] != "#")
    rows.update((name, f"{seconds:.1f}") for name, _, seconds, outcome in tests if outcome == "passed")
    file.write_text(HEAD + "".join(f"{name} {seconds}\n" for name, seconds in sorted(rows.items())))


def print_times(tests):
    print("\nseconds  test")
    for name, _, seconds, _ in sorted(tests, key=lambda test: -test[2]):
        print(f"{seconds:7.1f}  {name}")
    print(f"{sum(test[2] for test in tests):7.1f}  in all\n")
    for build in BUILDS:
        steps = build_steps(build)
        print(f"seconds  {len(steps)} steps of {build}, the longest")
        for output, seconds in steps[:25]:
            print(f"{seconds:7.1f}  {output}")
        print(f"{sum(seconds for _, seconds in steps):7.1f}  in all\n")


def main(status, times):
    junit = ROOT / "build" / "both" / "junit.xml"
    if not junit.exists():
        print("ctest wrote no results\n0 passed, 1 failed")
        return 1
    tests = list(cases(junit))
    counted = [(name, outcome) for name, _, _, outcome in tests if not name.startswith("text-")]
    for build in BUILDS:
        folders = [test for test in tests if test[0].startswith("text-") and test[0].endswith(".dev") == (build == "build-dev")]
        for name, _, _, outcome in folders:
            file = ROOT / build / "lit" / f"{name.removesuffix('.dev')}.xml"
            texts = [(f"{folder}/{case}", result) for case, folder, _, result in cases(file)] if file.exists() else []
            if outcome == "failed" and "failed" not in dict(texts).values():
                texts.append((name, outcome))  # lit itself failed, or was killed
            counted += texts
    if times:
        print_times(tests)
        write_seconds(tests)
    failed = [name for name, outcome in counted if outcome == "failed"]
    if status and not failed:
        failed = [f"ctest itself, exit status {status}"]
    passed = sum(outcome == "passed" for _, outcome in counted)
    for name in failed:
        print("FAILED", name)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


sys.exit(main(int(sys.argv[1]), "--times" in sys.argv[2:]))
